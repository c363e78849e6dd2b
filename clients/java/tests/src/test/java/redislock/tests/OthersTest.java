package redislock.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Lock;
import java.util.logging.Filter;
import java.util.logging.Logger;
import org.junit.jupiter.api.Test;
import redislock.Hold;
import redislock.LockException;
import redislock.LockLostException;
import redislock.LockSpec;
import redislock.LockTimeoutException;
import redislock.Locks;
import redislock.Observation;

/** What the tests of Redisson's locks ask for, and what users of other packages have reported, as far as the other files do not have it. */
class OthersTest extends Tests {
    @Test
    void oneOfManyTriesSucceeds() throws Exception {
        TestServer server = server();
        List<Locks> processes = List.of(process(server), process(server), process(server));
        AtomicInteger held = new AtomicInteger();
        List<Future<?>> all = new ArrayList<>();
        for (int n = 0; n < 100; n++) {
            LockSpec spec = processes.get(n % 3).lock("door").lease(Duration.ofMinutes(1));
            all.add(start(() -> spec.tryAcquire().ifPresent(hold -> held.incrementAndGet())));
        }
        for (Future<?> one : all) {
            one.get(10, TimeUnit.SECONDS);
        }
        assertEquals(1, held.get());
    }

    @Test
    void expiredLockIsLost() throws Exception {
        TestServer server = server();
        LockSpec spec = process(server).lock("door").lease(Duration.ofMillis(500));
        Hold hold = acquire(spec);
        assertTrue(hold.isHeld());
        pause(600);
        assertFalse(hold.isHeld());
        Hold next = acquire(process(server), "door");
        fails(LockLostException.class, () -> hold.extend(Duration.ofMinutes(1)));
        fails(LockLostException.class, hold::release);
        // The late release has taken nothing from the next holder.
        assertEquals(next.token(), server.ask("GET", "door"));
        next.release();
    }

    @Test
    void extensionSetsLease() throws Exception {
        TestServer server = server();
        Hold hold = acquire(process(server).lock("door").lease(Duration.ofHours(1)));
        hold.extend(Duration.ofMillis(100));
        soon(lost(hold));
        nothingLeft(server, "door");
    }

    @Test
    void patienceMayBeLongerThanLease() throws Exception {
        TestServer server = server();
        Hold hold = acquire(process(server), "door");
        Future<Hold> waiter = waiting(server, process(server).lock("door").lease(Duration.ofMillis(500)), "door", 1);
        pause(1000);
        hold.release();
        soon(waiter).release();
    }

    @Test
    void longWorkKeepsItsLock() throws Exception {
        TestServer server = server();
        Locks other = process(server);
        process(server).lock("job").lease(Duration.ofMillis(600)).renew().run(hold -> {
            for (int n = 0; n < 20; n++) {
                pause(100);
                assertEquals(Optional.empty(), other.lock("job").tryAcquire());
            }
        });
        nothingLeft(server, "job");
        // No renewal goes on after the release.
        int before = server.calls("lock.extend");
        pause(500);
        assertEquals(before, server.calls("lock.extend"));
    }

    @Test
    void otherTypeOfKeyIsError() throws Exception {
        TestServer server = server();
        server.ask("LPUSH", "door", "a");
        assertTrue(fails(LockException.class, process(server).lock("door")::acquire).getMessage().contains("WRONGTYPE"));
    }

    @Test
    void anyThreadMayRelease() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        Hold hold = acquire(locks, "door");
        start(hold::release).get();
        // As reactive stages do: each runs in another thread.
        locks.lock("door").acquireAsync().thenCompose(one -> CompletableFuture.runAsync(() -> { }).thenCompose(done -> one.releaseAsync()))
            .get(5, TimeUnit.SECONDS);
        nothingLeft(server, "door");
    }

    @Test
    void failingListenerStopsNothing() throws Exception {
        TestServer server = server();
        Hold hold = acquire(process(server), "door");
        hold.onLost(() -> { }, task -> {
            throw new RejectedExecutionException("full");
        });
        CompletableFuture<?> lost = lost(hold);
        server.ask("DEL", "door");
        soon(lost);
        acquire(process(server), "door").release();
    }

    @Test
    void failureOfObserverIsLogged() throws Exception {
        CompletableFuture<Throwable> logged = new CompletableFuture<>();
        Logger logger = Logger.getLogger("redislock");
        Filter old = logger.getFilter();
        logger.setFilter(entry -> entry.getThrown() == null || !logged.complete(entry.getThrown()));
        try (Observation observation = process(server()).observe("door", label -> {
            throw new UnsupportedOperationException();
        })) {
            assertEquals(UnsupportedOperationException.class, logged.get(5, TimeUnit.SECONDS).getClass());
        } finally {
            logger.setFilter(old);
        }
    }

    @Test
    void threadAcquiresItsLockAgain() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        Lock lock = locks.lock("door").asLock();
        Lock same = locks.lock("door").asLock();
        lock.lock();
        same.lockInterruptibly();
        assertTrue(lock.tryLock());
        assertTrue(lock.tryLock(1, TimeUnit.SECONDS));
        start(() -> {
            assertFalse(lock.tryLock());
            assertFalse(same.tryLock(20, TimeUnit.MILLISECONDS));
            fails(IllegalMonitorStateException.class, lock::unlock);
        }).get();
        for (int n = 0; n < 4; n++) {
            assertEquals("mutex", server.info("door", "state"));
            (n % 2 == 0 ? lock : same).unlock();
        }
        assertEquals("free", server.info("door", "state"));
        fails(IllegalMonitorStateException.class, lock::unlock);
        fails(UnsupportedOperationException.class, lock::newCondition);
    }

    @Test
    void threadLearnsOfLossAtUnlock() throws Exception {
        TestServer server = server();
        Lock lock = process(server).lock("door").asLock();
        lock.lock();
        server.ask("DEL", "door");
        assertInstanceOf(LockLostException.class, fails(IllegalMonitorStateException.class, lock::unlock).getCause());
        lock.lock();
        lock.unlock();
        Lock brief = process(server).lock("shelf").lease(Duration.ofMillis(50)).asLock();
        brief.lock();
        pause(100);
        fails(LockLostException.class, brief::lock);
        fails(IllegalMonitorStateException.class, brief::unlock);
    }

    @Test
    void threadsExcludeEachOther() throws Exception {
        TestServer server = server();
        List<Lock> locks = List.of(process(server).lock("door").asLock(), process(server).lock("door").asLock());
        int[] count = {0};
        List<Future<?>> all = new ArrayList<>();
        for (int n = 0; n < 20; n++) {
            Lock lock = locks.get(n % 2);
            all.add(start(() -> {
                for (int m = 0; m < 50; m++) {
                    lock.lock();
                    try {
                        count[0]++;
                    } finally {
                        lock.unlock();
                    }
                }
            }));
        }
        for (Future<?> one : all) {
            one.get(30, TimeUnit.SECONDS);
        }
        assertEquals(1000, count[0]);
    }

    @Test
    void interruptEndsLockInterruptiblyAlone() throws Exception {
        TestServer server = server();
        Hold hold = acquire(process(server), "door");
        Lock lock = process(server).lock("door").asLock();
        CountDownLatch ended = new CountDownLatch(1);
        Thread thread = new Thread(() -> {
            fails(InterruptedException.class, lock::lockInterruptibly);
            ended.countDown();
            lock.lock();
            lock.unlock();
            assertTrue(Thread.interrupted());
            ended.countDown();
        });
        thread.start();
        eventually("a waiter", () -> server.info("door", "waiters").equals("1"));
        thread.interrupt();
        assertTrue(ended.await(1, TimeUnit.SECONDS));
        eventually("a waiter", () -> server.info("door", "waiters").equals("1"));
        thread.interrupt();
        pause(100);
        assertTrue(thread.isAlive());
        hold.release();
        thread.join(2000);
        assertFalse(thread.isAlive());
    }

    @Test
    void exceptionHasStackOfCaller() throws Exception {
        TestServer server = server();
        acquire(process(server), "door");
        Locks locks = process(server);
        Exception failure = fails(LockTimeoutException.class, locks.lock("door").waitAtMost(Duration.ofMillis(20))::acquire);
        assertTrue(List.of(failure.getStackTrace()).stream().anyMatch(one -> one.getClassName().equals(OthersTest.class.getName())));
    }

    @Test
    void argumentsAreCheckedBeforeAnythingIsSent() {
        Locks locks = open(Locks.connect("redis://127.0.0.1:1"));
        LockSpec spec = locks.lock("door");
        fails(IllegalArgumentException.class, () -> locks.lock(""));
        fails(IllegalArgumentException.class, locks::several);
        fails(IllegalArgumentException.class, () -> spec.lease(Duration.ZERO));
        fails(IllegalArgumentException.class, () -> spec.waitAtMost(Duration.ofMillis(-1)));
        fails(IllegalArgumentException.class, () -> spec.permits(0));
        fails(IllegalArgumentException.class, () -> spec.maxWaiters(0));
        fails(IllegalArgumentException.class, () -> spec.label("a b"));
        fails(IllegalArgumentException.class, () -> spec.reentrant(""));
        fails(IllegalArgumentException.class, () -> spec.reentrant("o").shared());
        fails(IllegalArgumentException.class, () -> spec.session().renew().acquireAsync());
        fails(IllegalArgumentException.class, () -> spec.session().lease(Duration.ofMillis(99)).tryAcquire());
        fails(IllegalArgumentException.class, () -> spec.attach(""));
        fails(IllegalArgumentException.class, () -> Locks.connect("http://localhost"));
    }
}
