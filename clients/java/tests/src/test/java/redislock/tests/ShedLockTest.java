package redislock.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockingTaskExecutor;
import net.javacrumbs.shedlock.core.SimpleLock;
import org.junit.jupiter.api.Test;
import redislock.LockConnectionException;
import redislock.Locks;
import redislock.shedlock.RedisLockProvider;

/** What the tests of ShedLock ask of its providers. */
class ShedLockTest extends Tests {
    private static LockConfiguration job(String name, long mostMillis, long leastMillis) {
        return new LockConfiguration(ClockProvider.now(), name, Duration.ofMillis(mostMillis), Duration.ofMillis(leastMillis));
    }

    private ExtensibleLockProvider provider(TestServer server) {
        return new RedisLockProvider(process(server));
    }

    @Test
    void jobIsLockedUntilItsEnd() {
        TestServer server = server();
        SimpleLock lock = provider(server).lock(job("report", 60_000, 0)).orElseThrow();
        assertEquals("string", server.ask("TYPE", "job-lock:default:report"));
        assertTrue(Long.parseLong(server.ask("PTTL", "job-lock:default:report")) > 50_000);
        assertEquals(Optional.empty(), provider(server).lock(job("report", 60_000, 0)));
        SimpleLock other = provider(server).lock(job("import", 60_000, 0)).orElseThrow();
        lock.unlock();
        fails(IllegalStateException.class, lock::unlock);
        assertEquals("0", server.ask("EXISTS", "job-lock:default:report"));
        provider(server).lock(job("report", 60_000, 0)).orElseThrow().unlock();
        other.unlock();
    }

    @Test
    void jobIsFreeAfterLockAtMostFor() throws Exception {
        TestServer server = server();
        SimpleLock late = provider(server).lock(job("report", 300, 0)).orElseThrow();
        pause(400);
        SimpleLock next = provider(server).lock(job("report", 60_000, 0)).orElseThrow();
        // The late end takes nothing from the next run, and is no error.
        late.unlock();
        assertEquals("1", server.ask("EXISTS", "job-lock:default:report"));
        next.unlock();
    }

    @Test
    void jobIsLockedForLockAtLeastFor() throws Exception {
        TestServer server = server();
        for (boolean hasSessions : new boolean[] {false, true}) {
            RedisLockProvider provider = new RedisLockProvider(process(server), "test", hasSessions);
            provider.lock(job("report", 60_000, 1000)).orElseThrow().unlock();
            assertEquals(Optional.empty(), provider(server, "test").lock(job("report", 60_000, 0)));
            eventually("free", () -> server.ask("EXISTS", "job-lock:test:report").equals("0"));
            SimpleLock second = provider.lock(job("report", 60_000, 500)).orElseThrow();
            pause(600);
            second.unlock();
            assertEquals("0", server.ask("EXISTS", "job-lock:test:report"));
        }
    }

    private RedisLockProvider provider(TestServer server, String environment) {
        return new RedisLockProvider(process(server), environment, false);
    }

    @Test
    void lockIsExtendedByItsHolderAlone() throws Exception {
        TestServer server = server();
        SimpleLock lock = provider(server).lock(job("report", 1000, 0)).orElseThrow();
        SimpleLock longer = lock.extend(Duration.ofMinutes(1), Duration.ZERO).orElseThrow();
        fails(IllegalStateException.class, lock::unlock);
        fails(IllegalStateException.class, () -> lock.extend(Duration.ofMinutes(1), Duration.ZERO));
        assertTrue(Long.parseLong(server.ask("PTTL", "job-lock:default:report")) > 50_000);
        SimpleLock again = longer.extend(Duration.ofMinutes(2), Duration.ZERO).orElseThrow();
        assertTrue(Long.parseLong(server.ask("PTTL", "job-lock:default:report")) > 110_000);
        again.unlock();
        assertEquals("0", server.ask("EXISTS", "job-lock:default:report"));
        SimpleLock expired = provider(server).lock(job("report", 100, 0)).orElseThrow();
        pause(200);
        assertEquals(Optional.empty(), expired.extend(Duration.ofMinutes(1), Duration.ZERO));
        // Another run has it by now.
        SimpleLock stolen = provider(server).lock(job("report", 100, 0)).orElseThrow();
        pause(200);
        provider(server).lock(job("report", 60_000, 0)).orElseThrow();
        assertEquals(Optional.empty(), stolen.extend(Duration.ofMinutes(1), Duration.ZERO));
    }

    @Test
    void sessionIsRenewedWhileJobRuns() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        SimpleLock lock = new RedisLockProvider(locks, "default", true).lock(job("report", 300, 0)).orElseThrow();
        pause(1000);
        assertEquals(Optional.empty(), provider(server).lock(job("report", 300, 0)));
        lock.unlock();
        provider(server).lock(job("report", 300, 0)).orElseThrow().unlock();
    }

    @Test
    void manyProcessesRunOneJobAtATime() throws Exception {
        TestServer server = server();
        List<ExtensibleLockProvider> providers = List.of(provider(server), provider(server));
        int[] count = {0};
        int[] runs = {0};
        List<Future<?>> all = new ArrayList<>();
        for (int n = 0; n < 8; n++) {
            LockingTaskExecutor executor = new DefaultLockingTaskExecutor(providers.get(n % 2));
            all.add(start(() -> {
                for (int m = 0; m < 50; m++) {
                    executor.executeWithLock((Runnable) () -> {
                        runs[0]++;
                        count[0]++;
                        Thread.yield();
                        count[0]--;
                        assertEquals(0, count[0]);
                    }, job("report", 60_000, 0));
                }
            }));
        }
        for (Future<?> one : all) {
            one.get(30, TimeUnit.SECONDS);
        }
        assertTrue(runs[0] > 0);
    }

    @Test
    void outageIsErrorOfTheRun() {
        TestServer server = server();
        ExtensibleLockProvider provider = provider(server);
        server.stop();
        fails(LockConnectionException.class, () -> provider.lock(job("report", 60_000, 0)));
    }
}
