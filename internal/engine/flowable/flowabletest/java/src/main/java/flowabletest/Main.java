package flowabletest;

import org.flowable.common.rest.exception.BaseExceptionHandlerAdvice;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.ApplicationListener;
import org.springframework.context.annotation.Bean;
import org.springframework.context.event.ContextRefreshedEvent;
import org.springframework.security.config.Customizer;
import org.springframework.security.config.annotation.web.builders.HttpSecurity;
import org.springframework.security.config.http.SessionCreationPolicy;
import org.springframework.security.core.userdetails.User;
import org.springframework.security.core.userdetails.UserDetailsService;
import org.springframework.security.provisioning.InMemoryUserDetailsManager;
import org.springframework.security.web.SecurityFilterChain;

/**
 * A real Flowable with its REST API, for tests. Its security is that of flowable-app-rest: HTTP Basic, and the authority
 * access-rest-api for every request.
 */
@SpringBootApplication
public class Main {

    public static void main(String[] args) {
        SpringApplication.run(Main.class, args);
    }

    @Bean
    SecurityFilterChain restApi(HttpSecurity http) throws Exception {
        return http
            .csrf(csrf -> csrf.disable())
            .sessionManagement(session -> session.sessionCreationPolicy(SessionCreationPolicy.STATELESS))
            .authorizeHttpRequests(requests -> requests.anyRequest().hasAuthority("access-rest-api"))
            .httpBasic(Customizer.withDefaults())
            .build();
    }

    /**
     * One user who may use the REST API, and one who may not. It is not the manager itself: Spring would have it keep the
     * passwords as bcrypt hashes after the first request, and each later request would cost a tenth of a second.
     */
    @Bean
    UserDetailsService users() {
        return new InMemoryUserDetailsManager(
            User.withUsername("inbox").password("{noop}inbox-secret").authorities("access-rest-api").build(),
            User.withUsername("stranger").password("{noop}stranger-secret").authorities("nothing").build())::loadUserByUsername;
    }

    /**
     * Without --flowabletest.full-errors=true Flowable masks the text of every error it does not know. Its REST API lives in
     * a context of its own, which is made with the first request and tells this one.
     */
    @Bean
    static ApplicationListener<ContextRefreshedEvent> errors(@Value("${flowabletest.full-errors:true}") boolean full) {
        return refreshed -> refreshed.getApplicationContext().getBeansOfType(BaseExceptionHandlerAdvice.class).values()
            .forEach(advice -> advice.setSendFullErrorException(full));
    }
}
