package redislock.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import redislock.Hold;
import redislock.LockLostException;
import redislock.LockSpec;
import redislock.Locks;

class LosingTest extends Tests {
    @Test
    void lossIsReportedWithinMilliseconds() throws Exception {
        TestServer server = server();
        for (String lose : List.of("DEL door", "SET door other", "FLUSHALL", "RENAME other door")) {
            Locks locks = process(server);
            server.ask("HSET", "other", "a", "1", "b", "2");
            Hold hold = acquire(locks, "door");
            CompletableFuture<?> lost = lost(hold);
            eventually("tracked", () -> server.calls("get") > 0 && !server.ask("INFO", "stats").contains("tracking_total_keys:0"));
            lostSoon(lost, server, lose.split(" "));
            assertFalse(hold.isHeld());
            assertInstanceOf(LockLostException.class, hold.lost().toCompletableFuture().get(1, TimeUnit.SECONDS));
            fails(LockLostException.class, () -> hold.extend(Duration.ofMinutes(1)));
            fails(LockLostException.class, hold::release);
            server.ask("FLUSHALL");
            server.ask("CONFIG", "RESETSTAT");
        }
    }

    /** With NOLOOP, an EXTEND of the own connection would end the tracking of the key without a message. */
    @Test
    void lossAfterOwnExtendIsReported() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        LockSpec door = locks.lock("door");
        for (LockSpec spec : List.of(door, door.lease(Duration.ofMinutes(1)), door.session(), door.shared(), door.reentrant("o"))) {
            for (int pause = 0; pause < 20; pause++) {
                Hold hold = acquire(spec);
                CompletableFuture<?> lost = lost(hold);
                hold.extend(Duration.ofMinutes(1));
                // The DEL comes before, during and after the read that follows the EXTEND.
                TimeUnit.MICROSECONDS.sleep(pause * 50L);
                lostSoon(lost, server, "DEL", "door");
                fails(LockLostException.class, hold::release);
            }
        }
    }

    @Test
    void lossAfterRenewalIsReported() throws Exception {
        TestServer server = server();
        Hold hold = acquire(process(server).lock("door").lease(Duration.ofMillis(4500)).renew());
        CompletableFuture<?> lost = lost(hold);
        pause(2000);
        assertTrue(hold.isHeld());
        lostSoon(lost, server, "DEL", "door");
    }

    @Test
    void oneOfManySharesIsLost() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        Hold one = acquire(locks.lock("page").shared().label("a"));
        Hold two = acquire(locks.lock("page").shared());
        CompletableFuture<?> a = lost(one);
        CompletableFuture<?> b = lost(two);
        server.ask("ZREM", "page", one.token());
        soon(a);
        pause(50);
        assertFalse(b.isDone());
        two.release();
    }

    @Test
    void leaseEndsByLocalClock() throws Exception {
        TestServer server = server();
        Hold hold = acquire(process(server).lock("door").lease(Duration.ofMillis(500)));
        CompletableFuture<?> lost = lost(hold);
        took(300, 2000, () -> {
            server.signal("STOP");
            soon(lost);
        });
        assertFalse(hold.isHeld());
        server.signal("CONT");
    }

    @Test
    void renewedLockOutlastsCutConnections() throws Exception {
        TestServer server = server();
        for (boolean session : new boolean[] {false, true}) {
            Locks locks = process(server);
            LockSpec spec = locks.lock("door");
            Hold hold = acquire(session ? spec.session() : spec.lease(Duration.ofSeconds(1)).renew());
            CompletableFuture<?> lost = lost(hold);
            for (int n = 0; n < 3; n++) {
                pause(300);
                server.cut();
            }
            pause(1500);
            assertFalse(lost.isDone());
            lostSoon(lost, server, "DEL", "door");
            fails(LockLostException.class, hold::release);
        }
    }

    @Test
    void sessionEndsWithItsProcess() throws Exception {
        TestServer server = server();
        Process child = new ProcessBuilder(System.getProperty("java.home") + "/bin/java", "-cp", System.getProperty("java.class.path"),
            SessionHolder.class.getName(), server.url()).inheritIO().start();
        eventually("held", () -> server.info("door", "state").equals("mutex"));
        Future<Hold> next = waiting(server, process(server).lock("door"), "door", 1);
        // Its lease would end after 30 s.
        took(500, 15_000, () -> {
            child.destroyForcibly();
            next.get(20, TimeUnit.SECONDS).release();
        });
    }

    /** A process that holds a session. */
    static final class SessionHolder {
        public static void main(String[] args) throws Exception {
            Hold hold = Locks.connect(args[0]).lock("door").session().acquire();
            Thread.sleep(60_000);
            hold.release();
        }
    }

    @Test
    void blockReleasesWhateverHappens() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        int seven = locks.lock("door").call(hold -> 7);
        assertEquals(7, seven);
        fails(UnsupportedOperationException.class, () -> locks.lock("door").run(hold -> {
            throw new UnsupportedOperationException();
        }));
        assertEquals("free", server.info("door", "state"));
        fails(LockLostException.class, () -> locks.lock("door").run(hold -> server.ask("DEL", "door")));
        Exception both = fails(UnsupportedOperationException.class, () -> locks.lock("door").run(hold -> {
            server.ask("DEL", "door");
            throw new UnsupportedOperationException();
        }));
        assertInstanceOf(LockLostException.class, both.getSuppressed()[0]);
    }

    @Test
    void lossInterruptsWork() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        took(0, 1000, () -> fails(LockLostException.class, () -> locks.lock("door").interruptOnLoss().run(hold -> {
            server.ask("DEL", "door");
            pause(10_000);
        })));
        assertFalse(Thread.interrupted());
        // Work that does not wait is not interrupted after its end.
        for (int n = 0; n < 50; n++) {
            fails(LockLostException.class, () -> locks.lock("door").interruptOnLoss().run(hold -> server.ask("DEL", "door")));
            assertFalse(Thread.interrupted());
        }
        // Another interrupt is not a loss.
        fails(InterruptedException.class, () -> locks.lock("door").interruptOnLoss().run(hold -> {
            Thread.currentThread().interrupt();
            pause(1000);
        }));
        nothingLeft(server, "door");
    }

    @Test
    void closeIsQuietAboutToldLoss() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        try (Hold hold = acquire(locks, "door")) {
            CompletableFuture<?> lost = lost(hold);
            server.ask("DEL", "door");
            soon(lost);
        }
        fails(LockLostException.class, () -> {
            try (Hold hold = acquire(locks, "door")) {
                server.ask("DEL", hold.name());
            }
        });
    }
}
