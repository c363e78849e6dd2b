package redislock.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import redislock.Hold;
import redislock.LockConnectionException;
import redislock.LockException;
import redislock.LockLostException;
import redislock.LockQueueFullException;
import redislock.LockSpec;
import redislock.LockTimeoutException;
import redislock.Locks;
import redislock.Observation;

class AcquiringTest extends Tests {
    @Test
    void heldLockIsTimeout() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        Locks other = process(server);
        Hold hold = acquire(locks.lock("door").label("billing"));
        assertTrue(server.info("door", "owner").startsWith("billing:"));
        assertEquals(hold.token(), server.info("door", "owner"));
        took(0, 500, () -> assertEquals(Optional.empty(), other.lock("door").tryAcquire()));
        took(100, 600, () -> {
            LockSpec spec = other.lock("door").waitAtMost(Duration.ofMillis(100));
            LockException failure = fails(LockTimeoutException.class, spec::acquire);
            assertEquals("acquire door", failure.operation() + " " + failure.name());
        });
        fails(LockTimeoutException.class, other.lock("door").waitAtMost(Duration.ZERO)::acquire);
        assertEquals("0", server.info("door", "waiters"));
        assertTrue(hold.isHeld());
        hold.release();
        hold.release();
        hold.close();
        assertFalse(hold.isHeld());
        acquire(other.lock("door").waitAtMost(Duration.ZERO)).close();
        nothingLeft(server, "door");
    }

    @Test
    void interruptedThreadSendsNothing() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        Thread.currentThread().interrupt();
        fails(InterruptedException.class, locks.lock("door")::acquire);
        assertEquals(0, server.calls("lock.acquire"));
    }

    @Test
    void interruptedWaitsLeaveNothing() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        Locks other = process(server);
        for (int n = 0; n < 100; n++) {
            Hold hold = acquire(locks, "door");
            CompletableFuture<Hold> result = new CompletableFuture<>();
            Thread thread = new Thread(() -> {
                try {
                    result.complete(other.lock("door").acquire());
                } catch (InterruptedException e) {
                    result.complete(null);
                }
            });
            thread.start();
            eventually("a waiter", () -> server.info("door", "waiters").equals("1"));
            endAtGrant(hold, n * 10L, thread::interrupt);
            Hold next = soon(result);
            if (next != null) {
                next.release();
            }
            nothingLeft(server, "door");
        }
    }

    @Test
    void cancelledFuturesLeaveNothing() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        Locks other = process(server);
        for (int n = 0; n < 100; n++) {
            Hold hold = acquire(locks, "door");
            CompletableFuture<Hold> future = other.lock("door").acquireAsync();
            endAtGrant(hold, n * 10L, () -> {
                if (!future.cancel(true)) {
                    future.join().release();
                }
            });
            nothingLeft(server, "door");
        }
        // Any end of the future by the caller withdraws the wait.
        Hold hold = acquire(locks, "door");
        CompletableFuture<Hold> future = other.lock("door").acquireAsync().orTimeout(50, TimeUnit.MILLISECONDS);
        fails(Exception.class, future::join);
        hold.release();
        nothingLeft(server, "door");
        // What depends on a future may wait for the server.
        other.lock("door").acquireAsync().thenAccept(Hold::release).get(5, TimeUnit.SECONDS);
        nothingLeft(server, "door");
    }

    @Test
    void waitersAreServedInOrder() throws Exception {
        TestServer server = server();
        Hold hold = acquire(process(server), "door");
        List<Integer> order = Collections.synchronizedList(new ArrayList<>());
        List<Future<?>> all = new ArrayList<>();
        for (int n = 0; n < 5; n++) {
            int number = n;
            Locks locks = process(server);
            all.add(start(() -> locks.lock("door").run(one -> order.add(number))));
            eventually("a waiter", () -> server.info("door", "waiters").equals(Integer.toString(number + 1)));
        }
        hold.release();
        for (Future<?> one : all) {
            soon(one);
        }
        assertEquals(List.of(0, 1, 2, 3, 4), order);
    }

    @Test
    void thousandWaitersAreOneAtServer() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        Hold hold = acquire(process(server), "door");
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        int threadsBefore = Thread.activeCount();
        List<CompletableFuture<Void>> all = new ArrayList<>();
        for (int n = 0; n < 1000; n++) {
            all.add(locks.lock("door").acquireAsync().thenCompose(one -> {
                most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                inside.decrementAndGet();
                return one.releaseAsync();
            }));
        }
        eventually("a waiter", () -> server.info("door", "waiters").equals("1"));
        assertTrue(Thread.activeCount() < threadsBefore + 10, "there is no thread for each");
        int before = server.calls("lock.acquire");
        pause(300);
        assertEquals(before, server.calls("lock.acquire"));
        assertEquals(2, server.connections().size());
        hold.release();
        CompletableFuture.allOf(all.toArray(CompletableFuture[]::new)).get(30, TimeUnit.SECONDS);
        assertEquals(1, most.get());
        nothingLeft(server, "door");
    }

    @Test
    void fullQueueIsError() throws Exception {
        TestServer server = server();
        Hold hold = acquire(process(server), "door");
        Locks other = process(server);
        Future<Hold> waiter = waiting(server, other.lock("door"), "door", 1);
        fails(LockQueueFullException.class, other.lock("door").maxWaiters(1)::acquire);
        fails(LockQueueFullException.class, process(server).lock("door").maxWaiters(1)::acquire);
        hold.release();
        soon(waiter).release();
    }

    @Test
    void sharesAndPermitsExclude() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        Hold one = acquire(locks.lock("page").shared());
        Hold two = acquire(process(server).lock("page").shared());
        assertEquals(Optional.empty(), locks.lock("page").tryAcquire());
        Future<Hold> writer = waiting(server, locks.lock("page"), "page", 1);
        one.release();
        two.release();
        soon(writer).release();
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        List<Future<?>> all = new ArrayList<>();
        for (int n = 0; n < 100; n++) {
            all.add(start(() -> locks.lock("pool").permits(3).run(hold -> {
                most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                pause(1);
                inside.decrementAndGet();
            })));
        }
        for (Future<?> each : all) {
            each.get(10, TimeUnit.SECONDS);
        }
        assertEquals(3, most.get());
        nothingLeft(server, "pool");
    }

    @Test
    void ownerAcquiresItsLockAgain() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        LockSpec job = locks.lock("door").reentrant("job-1");
        Hold one = acquire(job);
        Hold two = acquire(job);
        assertEquals(Optional.empty(), locks.lock("door").reentrant("job-2").tryAcquire());
        fails(IllegalArgumentException.class, two::detach);
        one.release();
        one.release();
        assertEquals("reentrant", server.info("door", "state"));
        two.detach();
        server.ask("DEL", "door");
        Hold lost = acquire(job);
        server.ask("DEL", "door");
        soon(lost(lost));
        fails(LockLostException.class, job::acquire);
        fails(LockLostException.class, lost::release);
        acquire(job).release();
        List<Future<?>> all = new ArrayList<>();
        for (int n = 0; n < 8; n++) {
            String owner = n % 2 == 0 ? "a" : "b";
            all.add(start(() -> {
                for (int m = 0; m < 100; m++) {
                    locks.lock("door").reentrant(owner).lease(Duration.ofMinutes(1)).acquire().release();
                }
            }));
        }
        for (Future<?> each : all) {
            each.get(20, TimeUnit.SECONDS);
        }
        nothingLeft(server, "door");
    }

    @Test
    void detachedLockIsAttached() throws Exception {
        TestServer server = server();
        Hold hold = acquire(process(server), "door");
        String token = hold.detach();
        fails(LockLostException.class, hold::release);
        LockSpec spec = process(server).lock("door").lease(Duration.ofMinutes(1)).session();
        Hold taken = spec.attach(token);
        fails(IllegalArgumentException.class, taken::detach);
        taken.release();
        fails(LockLostException.class, () -> spec.attach(token));
    }

    @Test
    void severalAreAllOrNone() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        Hold b = acquire(process(server), "b");
        fails(LockTimeoutException.class, locks.several("c", "b", "a").waitAtMost(Duration.ofMillis(50))::acquire);
        nothingLeft(server, "a");
        CompletableFuture<Hold> cancelled = locks.several("c", "b", "a").acquireAsync();
        eventually("a waiter", () -> server.info("b", "waiters").equals("1"));
        cancelled.cancel(true);
        nothingLeft(server, "a");
        b.release();
        fails(IllegalArgumentException.class, () -> locks.several("c", "b", "b"));
        Hold all = locks.several("c", "b", "a").acquire();
        assertEquals("a, b, c", all.name());
        all.extend(Duration.ofSeconds(20));
        CompletableFuture<?> lost = lost(all);
        server.ask("DEL", "b");
        soon(lost);
        fails(IllegalArgumentException.class, all::fence);
        fails(LockLostException.class, all::release);
        nothingLeft(server, "a");
        nothingLeft(server, "c");
    }

    @Test
    void observerSeesEachHolder() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        BlockingQueue<Optional<String>> seen = new LinkedBlockingQueue<>();
        Observation observation = process(server).observe("leader", seen::add);
        assertEquals(Optional.empty(), seen.poll(1, TimeUnit.SECONDS));
        Hold hold = acquire(locks.lock("leader").session().label("one"));
        assertEquals(Optional.of("one"), seen.poll(1, TimeUnit.SECONDS));
        hold.release();
        assertEquals(Optional.empty(), seen.poll(1, TimeUnit.SECONDS));
        acquire(locks.lock("leader").lease(Duration.ofMillis(200)).label("two"));
        assertEquals(Optional.of("two"), seen.poll(1, TimeUnit.SECONDS));
        assertEquals(Optional.empty(), seen.poll(1, TimeUnit.SECONDS));
        observation.close();
        acquire(locks, "leader").release();
        assertEquals(null, seen.poll(100, TimeUnit.MILLISECONDS));
    }

    @Test
    void observationEndsWithItsLocks() throws Exception {
        TestServer server = server();
        BlockingQueue<Optional<String>> seen = new LinkedBlockingQueue<>();
        Locks locks = Locks.connect(server.url());
        Locks others = Locks.connect(server.url());
        locks.observe("leader", seen::add);
        assertEquals(Optional.empty(), seen.poll(5, TimeUnit.SECONDS));
        locks.close();
        acquire(others, "leader").release();
        assertEquals(null, seen.poll(100, TimeUnit.MILLISECONDS));
        others.close();
    }

    @Test
    void fencingTokensRise() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        long last = 0;
        for (int n = 0; n < 3; n++) {
            Hold hold = acquire(locks, "door");
            long token = hold.fence();
            assertTrue(token > last);
            last = token;
            hold.release();
            fails(LockLostException.class, hold::fence);
        }
    }

    @Test
    void collectedHoldIsReleased() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        acquire(locks.lock("door").lease(Duration.ofSeconds(1)).renew());
        acquire(locks.lock("shelf").lease(Duration.ofMinutes(1)));
        eventually("collected", () -> {
            System.gc();
            pause(20);
            return server.info("door", "state").equals("free");
        });
        assertEquals("mutex", server.info("shelf", "state"));
    }

    @Test
    void collectedInnerHoldReleasesNothing() throws Exception {
        TestServer server = server();
        LockSpec job = process(server).lock("door").lease(Duration.ofSeconds(6)).renew().reentrant("job-1");
        Hold outer = acquire(job);
        Hold inner = acquire(job);
        WeakReference<Hold> first = new WeakReference<>(inner);
        inner.release();
        inner = null;
        eventually("collected", () -> {
            System.gc();
            pause(20);
            return first.get() == null;
        });
        int renewals = server.calls("lock.extend");
        eventually("renewed or lost", () -> server.calls("lock.extend") > renewals || !outer.isHeld());
        assertTrue(outer.isHeld());
        outer.release();
    }

    @Test
    void closeReleasesWhatIsHeld() throws Exception {
        TestServer server = server();
        Locks locks = process(server);
        Hold hold = acquire(locks, "door");
        Hold fixed = acquire(locks.lock("shelf").lease(Duration.ofMinutes(1)));
        Hold theirs = acquire(process(server), "other");
        Future<Hold> waiter = waiting(server, locks.lock("other"), "other", 1);
        locks.close();
        nothingLeft(server, "door");
        assertEquals("mutex", server.info("shelf", "state"));
        eventually("no connection", () -> server.connections().size() == 1);
        assertEquals(LockConnectionException.class, fails(Exception.class, () -> soon(waiter)).getCause().getClass());
        assertEquals("0", server.info("other", "waiters"));
        fails(LockLostException.class, hold::release);
        fails(LockConnectionException.class, fixed::release);
        fails(LockConnectionException.class, locks.lock("door")::acquire);
        theirs.release();
    }
}
