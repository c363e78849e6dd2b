package redislock.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import redislock.Hold;
import redislock.LockConnectionException;
import redislock.LockException;
import redislock.LockTimeoutException;
import redislock.Locks;
import redislock.Server;

class OutagesTest extends Tests {
    private static final String[] DURABLE = {"--appendonly", "yes", "--appendfsync", "always"};

    @Test
    void unknownAddressIsErrorAtOnce() throws Exception {
        TestServer server = server();
        server.stop();
        took(0, 1500, () -> {
            LockException failure = fails(LockConnectionException.class, process(server).lock("door")::acquire);
            assertTrue(failure.getCause() instanceof java.net.ConnectException);
            fails(LockConnectionException.class, () -> process(server).lock("door").tryAcquire());
        });
    }

    @Test
    void errorOfConnectorIsErrorAtOnce() throws Exception {
        Server broken = new Server("broken", address -> {
            throw new NoClassDefFoundError("of a library");
        }, null, 0);
        took(0, 4000, () -> {
            LockException failure = fails(LockConnectionException.class, open(Locks.of(broken)).lock("door")::acquire);
            assertEquals(NoClassDefFoundError.class, failure.getCause().getClass());
        });
    }

    @Test
    void waitGoesOnWhileServerRestarts() throws Exception {
        TestServer server = server();
        Locks other = process(server);
        acquire(process(server).lock("door").lease(Duration.ofMinutes(1)));
        Future<Hold> waiter = waiting(server, other.lock("door"), "door", 1);
        server.stop();
        pause(1000);
        Future<Hold> begun = threads.submit(other.lock("shelf")::acquire);
        pause(100);
        server.restart();
        waiter.get(3, TimeUnit.SECONDS).release();
        begun.get(3, TimeUnit.SECONDS).release();
    }

    @Test
    void holderSurvivesShortOutages() throws Exception {
        TestServer server = server(DURABLE);
        Locks locks = process(server);
        Hold hold = acquire(locks.lock("door").lease(Duration.ofMinutes(1)));
        List<Action> actions = List.of(() -> hold.extend(Duration.ofMinutes(1)), () -> locks.lock("shelf").tryAcquire().orElseThrow(),
            hold::release);
        for (Action action : actions) {
            server.stop();
            Future<?> restart = start(() -> {
                pause(200);
                server.restart();
            });
            action.run();
            restart.get();
        }
        nothingLeft(server, "door");
    }

    @Test
    void outageAtDeadlineIsNoTimeout() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        Locks other = process(server);
        Hold hold = acquire(locks, "door");
        Future<Hold> first = waiting(server, other.lock("door").waitAtMost(Duration.ofMillis(700)), "door", 1);
        Future<Hold> behind = threads.submit(other.lock("door").waitAtMost(Duration.ofMillis(1500))::acquire);
        pause(200);
        server.signal("STOP");
        took(300, 3500, () -> {
            for (Future<Hold> one : List.of(first, behind)) {
                assertEquals(LockConnectionException.class, fails(ExecutionException.class, one::get).getCause().getClass());
            }
        });
        fails(LockConnectionException.class, locks.lock("shelf").waitAtMost(Duration.ofMillis(50))::acquire);
        server.signal("CONT");
        eventually("withdrawn", () -> server.info("door", "waiters").equals("0") && server.info("shelf", "state").equals("free"));
        hold.release();
    }

    @Test
    void silentServerIsReplaced() throws Exception {
        TestServer server = server();
        Hold hold = acquire(process(server).lock("door").lease(Duration.ofMinutes(1)));
        server.signal("STOP");
        took(4000, 7000, () -> fails(LockConnectionException.class, () -> hold.extend(Duration.ofMinutes(1))));
        server.signal("CONT");
        hold.extend(Duration.ofMinutes(1));
        hold.release();
    }

    @Test
    void fullSocketsStopNoTimer() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        acquire(locks, "door").release();
        server.signal("STOP");
        // More than the sockets of both sides take.
        String name = "x".repeat(100_000);
        List<Future<?>> all = new ArrayList<>();
        for (int n = 0; n < 100; n++) {
            String one = name + n;
            all.add(start(() -> fails(LockConnectionException.class, locks.lock(one).waitAtMost(Duration.ofSeconds(1))::acquire)));
        }
        for (Future<?> one : all) {
            one.get(10, TimeUnit.SECONDS);
        }
        server.signal("CONT");
        acquire(locks, "door").release();
    }

    @Test
    void cutConnectionsLeaveNothing() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        AtomicBoolean isOver = new AtomicBoolean();
        Future<?> cutter = start(() -> {
            while (!isOver.get()) {
                pause(5);
                server.cut();
            }
        });
        List<Future<?>> all = new ArrayList<>();
        for (int n = 0; n < 40; n++) {
            String name = "door-" + n % 4;
            all.add(start(() -> {
                for (int m = 0; m < 10; m++) {
                    locks.lock(name).acquire().release();
                }
            }));
        }
        for (Future<?> one : all) {
            one.get(60, TimeUnit.SECONDS);
        }
        isOver.set(true);
        cutter.get();
        for (int n = 0; n < 4; n++) {
            nothingLeft(server, "door-" + n);
        }
    }

    @Test
    void releaseInOutageIsDoneLater() throws Exception {
        TestServer server = server(DURABLE);
        Locks locks = process(server);
        Hold hold = acquire(locks.lock("door").lease(Duration.ofMinutes(1)));
        server.stop();
        fails(LockConnectionException.class, hold::release);
        server.restart();
        nothingLeft(server, "door");
    }

    @Test
    void killedConnectionsKeepOneHolder() throws Exception {
        TestServer server = server();
        List<Locks> processes = List.of(process(server), process(server));
        AtomicInteger inside = new AtomicInteger();
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(3);
        List<Future<?>> all = new ArrayList<>();
        all.add(start(() -> {
            while (System.nanoTime() < until) {
                pause(100);
                server.cut();
            }
        }));
        for (int n = 0; n < 20; n++) {
            Locks locks = processes.get(n % 2);
            Duration patience = Duration.ofMillis(20 * (n + 1));
            all.add(start(() -> {
                while (System.nanoTime() < until) {
                    try (Hold hold = locks.lock("door").waitAtMost(patience).acquire()) {
                        assertEquals(1, inside.incrementAndGet(), hold.name());
                        pause(1);
                        inside.decrementAndGet();
                    } catch (LockTimeoutException | LockConnectionException e) {
                        // It had no lock.
                    }
                }
            }));
        }
        for (Future<?> one : all) {
            one.get(20, TimeUnit.SECONDS);
        }
        nothingLeft(server, "door");
    }
}
