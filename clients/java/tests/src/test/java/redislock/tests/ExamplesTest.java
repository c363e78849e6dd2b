package redislock.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import examples.Application;
import examples.Stock;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.springframework.boot.SpringApplication;
import org.springframework.context.ConfigurableApplicationContext;

/** The application of clients/java/examples. */
class ExamplesTest extends Tests {
    @Test
    void processesOrderOnceASecondAndSellWhatThereIs() throws Exception {
        TestServer server = server();
        AtomicBoolean isOpen = new AtomicBoolean(true);
        AtomicInteger sold = new AtomicInteger();
        List<ConfigurableApplicationContext> processes = new ArrayList<>();
        List<Future<?>> sellers = new ArrayList<>();
        for (int n = 0; n < 2; n++) {
            processes.add(open(SpringApplication.run(Application.class, "--spring.data.redis.port=" + server.port,
                "--spring.data.redis.host=127.0.0.1", "--spring.main.banner-mode=off")));
        }
        long begun = System.nanoTime();
        int before = number(server);
        for (int n = 0; n < 4; n++) {
            Stock stock = processes.get(n % 2).getBean(Stock.class);
            sellers.add(start(() -> {
                while (isOpen.get()) {
                    sold.addAndGet(stock.sell("apples") ? 1 : 0);
                }
            }));
        }
        eventually("six orders are sold", () -> sold.get() >= before + 60);
        isOpen.set(false);
        for (Future<?> seller : sellers) {
            seller.get(10, TimeUnit.SECONDS);
        }
        processes.forEach(ConfigurableApplicationContext::close);
        int ordered = sold.get() + number(server) - before;
        assertEquals(0, ordered % 10);
        long seconds = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - begun);
        assertTrue(ordered / 10 <= seconds + 2, ordered + " articles in " + seconds + " s");
    }

    private static int number(TestServer server) {
        String number = server.ask("GET", "apples");
        return number.isEmpty() ? 0 : Integer.parseInt(number);
    }
}
