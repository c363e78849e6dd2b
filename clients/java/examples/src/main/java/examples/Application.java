package examples;

import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.spring.annotation.EnableSchedulerLock;
import net.javacrumbs.shedlock.spring.annotation.SchedulerLock;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.scheduling.annotation.EnableScheduling;
import org.springframework.scheduling.annotation.Scheduled;
import redislock.Locks;
import redislock.shedlock.RedisLockProvider;

/**
 * A service of which several processes run. The settings are those of spring.data.redis; {@link Stock} uses the LockRegistry that Spring Boot
 * configures, and the job below runs in one process at a time.
 */
@SpringBootApplication
@EnableScheduling
@EnableSchedulerLock(defaultLockAtMostFor = "30s")
public class Application {
    private final Stock stock;

    Application(Stock stock) {
        this.stock = stock;
    }

    /** Starts a process. */
    public static void main(String[] args) {
        SpringApplication.run(Application.class, args);
    }

    @Bean
    LockProvider lockProvider(Locks locks) {
        return new RedisLockProvider(locks);
    }

    /** Orders what is missing, each second. A process whose clock is a little late finds the job done. */
    @Scheduled(cron = "* * * * * *")
    @SchedulerLock(name = "order", lockAtLeastFor = "500ms")
    public void order() throws InterruptedException {
        stock.order("apples", 10);
    }
}
