package flowabletest;

import java.sql.SQLException;

import org.flowable.common.engine.api.FlowableException;
import org.flowable.common.engine.api.FlowableIllegalArgumentException;
import org.flowable.common.engine.api.FlowableObjectNotFoundException;
import org.flowable.engine.delegate.DelegateExecution;
import org.flowable.engine.delegate.JavaDelegate;
import org.springframework.stereotype.Component;

/** A step of a process that goes wrong in the way that the variable "fault" names: ${faults} as a delegate. */
@Component("faults")
public class Faults implements JavaDelegate {

    @Override
    public void execute(DelegateExecution execution) {
        Object fault = execution.getVariable("fault");
        switch (String.valueOf(fault)) {
            case "technical" -> throw new FlowableException("The invoice service is down", new SQLException("connection reset"));
            case "plain" -> throw new IllegalStateException("A step has failed");
            case "argument" -> throw new FlowableIllegalArgumentException("The amount is no number");
            case "missing" -> throw new FlowableObjectNotFoundException("no processes deployed with key 'billing'");
            case "slow" -> sleep(3_000);
            default -> { }
        }
    }

    private static void sleep(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
