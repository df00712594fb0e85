package flowabletest;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

import org.flowable.eventregistry.api.EventRegistry;
import org.flowable.eventregistry.api.InboundEventChannelAdapter;
import org.flowable.eventregistry.model.InboundChannelModel;
import org.springframework.http.HttpStatus;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.ResponseStatus;
import org.springframework.web.bind.annotation.RestController;

/**
 * Inbound channels of Flowable's event registry, by HTTP: a channel of type expression with ${events} as its adapter. What
 * comes in goes where Flowable's listeners for Kafka, JMS and RabbitMQ hand theirs in.
 */
@RestController("events")
public class Events implements InboundEventChannelAdapter {

    private final Map<String, InboundChannelModel> channels = new ConcurrentHashMap<>();
    private volatile EventRegistry registry;

    @Override
    public void setInboundChannelModel(InboundChannelModel channel) {
        channels.put(channel.getKey(), channel);
    }

    @Override
    public void setEventRegistry(EventRegistry registry) {
        this.registry = registry;
    }

    @PostMapping("/events/{channel}")
    @ResponseStatus(HttpStatus.NO_CONTENT)
    public void receive(@PathVariable("channel") String channel, @RequestBody String event) {
        registry.eventReceived(channels.get(channel), event);
    }
}
