package redislock.tests;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import redislock.Hold;
import redislock.LockSpec;
import redislock.Locks;
import redislock.Server;

/** What tests have in common. All that they open is closed after each. */
abstract class Tests {
    private static final AtomicInteger PROCESSES = new AtomicInteger();

    private final List<AutoCloseable> opened = new ArrayList<>();
    final ExecutorService threads = Executors.newCachedThreadPool();

    interface Action {
        void run() throws Exception;
    }

    <T extends AutoCloseable> T open(T one) {
        opened.add(0, one);
        return one;
    }

    @AfterEach
    void closeAll() throws Exception {
        for (AutoCloseable one : opened) {
            one.close();
        }
        threads.shutdownNow();
    }

    TestServer server(String... options) {
        return open(TestServer.start(options));
    }

    /** Returns locks with a connection of their own, as another process has. */
    Locks process(TestServer server) {
        return process(server, null);
    }

    Locks process(TestServer server, Server.Credentials user) {
        return open(Locks.of(new Server("process " + PROCESSES.incrementAndGet(),
            address -> Server.open(Server.resolve(address, server.address()), null, true), () -> user, 0)));
    }

    static Hold acquire(Locks locks, String name) throws InterruptedException {
        return acquire(locks.lock(name));
    }

    static Hold acquire(LockSpec spec) throws InterruptedException {
        return spec.waitAtMost(Duration.ofSeconds(10)).acquire();
    }

    /** Starts an acquisition, and returns its result when the server has so many waiters. */
    Future<Hold> waiting(TestServer server, LockSpec spec, String name, int count) {
        Future<Hold> result = threads.submit(spec::acquire);
        eventually("waiters", () -> server.info(name, "waiters").equals(Integer.toString(count)));
        return result;
    }

    Future<?> start(Action action) {
        return threads.submit(() -> {
            action.run();
            return null;
        });
    }

    static <T> T soon(Future<T> future) throws Exception {
        return future.get(1, TimeUnit.SECONDS);
    }

    /** Returns what is completed when a hold is lost. */
    static CompletableFuture<?> lost(Hold hold) {
        CompletableFuture<Void> lost = new CompletableFuture<>();
        hold.onLost(() -> lost.complete(null));
        return lost;
    }

    static void pause(long millis) throws InterruptedException {
        Thread.sleep(millis);
    }

    /** Releases a lock, and ends the wait of the next one a time later: the grant and that end meet. */
    static void endAtGrant(Hold hold, long micros, Action end) throws Exception {
        CompletableFuture<Void> released = hold.releaseAsync();
        spin(micros);
        end.run();
        released.join();
    }

    /** Lets a time pass that is too short for a sleep. */
    private static void spin(long micros) {
        for (long until = System.nanoTime() + TimeUnit.MICROSECONDS.toNanos(micros); System.nanoTime() < until;) {
            Thread.onSpinWait();
        }
    }

    /** Sends a command that ends a hold, and fails unless that is reported before the next renewal, at once but for a busy machine. */
    static void lostSoon(CompletableFuture<?> lost, TestServer server, String... words) throws Exception {
        took(0, 500, () -> {
            server.ask(words);
            soon(lost);
        });
    }

    /** Fails unless an action takes a time. */
    static void took(long least, long most, Action action) throws Exception {
        long at = System.nanoTime();
        action.run();
        long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - at);
        assertTrue(least <= millis && millis <= most, "it took " + millis + " ms, not " + least + " to " + most);
    }

    static <E extends Throwable> E fails(Class<E> type, Action action) {
        return assertThrows(type, action::run);
    }

    static void eventually(String what, Callable<Boolean> isTrue) {
        try {
            for (long until = System.nanoTime() + TimeUnit.MINUTES.toNanos(1); !isTrue.call(); Thread.sleep(2)) {
                if (System.nanoTime() > until) {
                    fail("not in time: " + what);
                }
            }
        } catch (Exception e) {
            throw new AssertionError(what, e);
        }
    }

    /** Fails unless the server has neither a holder nor a waiter. */
    static void nothingLeft(TestServer server, String name) {
        eventually("nothing is left", () -> server.info(name, "state").equals("free") && server.info(name, "waiters").equals("0"));
    }
}
