package redislock.tests;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.ConcurrentModificationException;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.Test;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.data.redis.autoconfigure.DataRedisAutoConfiguration;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.dao.CannotAcquireLockException;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.integration.leader.Context;
import org.springframework.integration.leader.DefaultCandidate;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.support.leader.LockRegistryLeaderInitiator;
import org.springframework.integration.support.locks.DistributedLock;
import org.springframework.integration.support.locks.LockRegistry;
import redislock.Locks;
import redislock.spring.RedisLockClientAutoConfiguration;
import redislock.spring.RedisLockClientRegistry;

/** What the tests of Spring Integration ask of its RedisLockRegistry and LockRegistryLeaderInitiator. */
class SpringTest extends Tests {
    private static final String KEY = "registry:door";

    private RedisLockClientRegistry registry(TestServer server, long leaseMillis) {
        return new RedisLockClientRegistry(process(server), "registry", Duration.ofMillis(leaseMillis));
    }

    private RedisLockClientRegistry registry(TestServer server) {
        return registry(server, 60_000);
    }

    private LettuceConnectionFactory factory(TestServer server) {
        LettuceConnectionFactory factory = new LettuceConnectionFactory("127.0.0.1", server.port);
        factory.afterPropertiesSet();
        factory.start();
        open((AutoCloseable) factory::destroy);
        return factory;
    }

    @Test
    void threadAcquiresItsLockAgain() throws Exception {
        TestServer server = server();
        RedisLockClientRegistry registry = registry(server);
        DistributedLock one = registry.obtain("door");
        one.lock();
        DistributedLock two = registry.obtain("door");
        assertTrue(two.tryLock());
        two.lockInterruptibly();
        two.lock(Duration.ofMinutes(5));
        assertTrue(Long.parseLong(server.ask("PTTL", KEY)) > 290_000);
        assertTrue(one.tryLock(Duration.ZERO, Duration.ofMinutes(1)));
        for (int n = 0; n < 5; n++) {
            assertEquals("1", server.ask("EXISTS", KEY));
            (n % 2 == 0 ? one : two).unlock();
        }
        assertEquals("0", server.ask("EXISTS", KEY));
        assertEquals("You do not own lock at registry:door", fails(IllegalStateException.class, one::unlock).getMessage());
        fails(UnsupportedOperationException.class, one::newCondition);
        fails(IllegalArgumentException.class, () -> registry.obtain(7));
    }

    /** Before Java 25 the pool must have two threads, else a future has a thread of its own for each task. */
    @Test
    void lockNeedsNoThreadOfThePool() throws Exception {
        RedisLockClientRegistry registry = registry(server());
        CountDownLatch isLocked = new CountDownLatch(1);
        int count = 2 * ForkJoinPool.getCommonPoolParallelism();
        for (int n = 0; n < count; n++) {
            ForkJoinPool.commonPool().execute(() -> assertDoesNotThrow(() -> isLocked.await()));
        }
        Future<?> locked = start(() -> {
            Lock lock = registry.obtain("door");
            lock.lock();
            lock.unlock();
        });
        try {
            locked.get(10, TimeUnit.SECONDS);
        } finally {
            isLocked.countDown();
        }
    }

    @Test
    void otherThreadsAndProcessesAreExcluded() throws Exception {
        TestServer server = server();
        List<RedisLockClientRegistry> registries = List.of(registry(server), registry(server));
        Lock lock = registries.get(0).obtain("door");
        lock.lock();
        for (RedisLockClientRegistry registry : registries) {
            Lock other = registry.obtain("door");
            start(() -> {
                assertFalse(other.tryLock());
                took(50, 500, () -> assertFalse(other.tryLock(50, TimeUnit.MILLISECONDS)));
                fails(IllegalStateException.class, other::unlock);
            }).get();
            start(() -> {
                Lock free = registry.obtain("window");
                free.lock();
                free.unlock();
            }).get();
        }
        Future<?> waiter = start(() -> {
            registries.get(1).obtain("door").lock();
            registries.get(1).obtain("door").unlock();
        });
        eventually("a waiter", () -> server.info(KEY, "waiters").equals("1"));
        lock.unlock();
        soon(waiter);
        int[] count = {0};
        List<Future<?>> all = new ArrayList<>();
        for (int n = 0; n < 10; n++) {
            RedisLockClientRegistry registry = registries.get(n % 2);
            all.add(start(() -> {
                for (int m = 0; m < 50; m++) {
                    registry.executeLocked("door", () -> {
                        count[0]++;
                    });
                }
            }));
        }
        for (Future<?> one : all) {
            one.get(30, TimeUnit.SECONDS);
        }
        assertEquals(500, count[0]);
        fails(TimeoutException.class, () -> {
            start(() -> registries.get(0).obtain("door").lock()).get();
            registries.get(1).executeLocked("door", Duration.ofMillis(50), () -> 1);
        });
    }

    @Test
    void expiryIsToldAtUnlock() throws Exception {
        TestServer server = server();
        Lock lock = registry(server, 100).obtain("door");
        lock.lock();
        pause(200);
        fails(ConcurrentModificationException.class, lock::unlock);
        lock.lock();
        pause(200);
        Lock other = registry(server).obtain("door");
        other.lock();
        fails(ConcurrentModificationException.class, lock::unlock);
        assertEquals("1", server.ask("EXISTS", KEY));
        other.unlock();
        // A lock that has expired is acquired anew by its thread, and its first unlock is no error.
        lock.lock();
        pause(200);
        lock.lock();
        lock.unlock();
        lock.unlock();
        lock.lock();
        server.ask("DEL", KEY);
        fails(ConcurrentModificationException.class, lock::unlock);
    }

    @Test
    void locksAreRenewed() throws Exception {
        TestServer server = server();
        RedisLockClientRegistry registry = registry(server, 600);
        fails(IllegalStateException.class, () -> registry.renewLock("door"));
        Lock lock = registry.obtain("door");
        lock.lock();
        registry.renewLock("door", Duration.ofMinutes(1));
        assertTrue(Long.parseLong(server.ask("PTTL", KEY)) > 50_000);
        registry.renewLock("door");
        assertTrue(Long.parseLong(server.ask("PTTL", KEY)) <= 600);
        // Any thread of the process renews.
        start(() -> registry.renewLock("door", Duration.ofMinutes(1))).get();
        lock.unlock();
        registry.setRenewalTaskScheduler(null);
        lock.lock();
        pause(1500);
        assertEquals("1", server.ask("EXISTS", KEY));
        server.ask("DEL", KEY);
        fails(IllegalStateException.class, () -> registry.renewLock("door"));
        fails(ConcurrentModificationException.class, lock::unlock);
        registry.expireUnusedOlderThan(0);
    }

    @Test
    void interruptEndsWaitThatMayBeInterrupted() throws Exception {
        TestServer server = server();
        Lock held = registry(server).obtain("door");
        held.lock();
        Lock lock = registry(server).obtain("door");
        Thread waiting = new Thread(() -> fails(InterruptedException.class, lock::lockInterruptibly));
        waiting.start();
        eventually("a waiter", () -> server.info(KEY, "waiters").equals("1"));
        waiting.interrupt();
        waiting.join(1000);
        assertFalse(waiting.isAlive());
        boolean[] wasInterrupted = {false};
        Thread patient = new Thread(() -> {
            lock.lock();
            lock.unlock();
            wasInterrupted[0] = Thread.interrupted();
        });
        patient.start();
        eventually("a waiter", () -> server.info(KEY, "waiters").equals("1"));
        patient.interrupt();
        pause(100);
        held.unlock();
        patient.join(2000);
        assertTrue(wasInterrupted[0]);
    }

    @Test
    void outageIsCannotAcquire() {
        TestServer server = server();
        Lock lock = registry(server).obtain("door");
        server.stop();
        fails(CannotAcquireLockException.class, lock::lock);
        fails(CannotAcquireLockException.class, lock::tryLock);
    }

    @Test
    void registriesOfBothKindsExcludeEachOther() throws Exception {
        TestServer server = server();
        RedisLockRegistry theirs = new RedisLockRegistry(factory(server), "registry");
        open((AutoCloseable) theirs::destroy);
        Lock old = theirs.obtain("door");
        Lock ours = registry(server).obtain("door");
        old.lock();
        assertFalse(ours.tryLock());
        Future<?> waiter = start(() -> {
            ours.lock();
            assertFalse(old.tryLock());
            ours.unlock();
        });
        eventually("a waiter", () -> server.info(KEY, "waiters").equals("1"));
        old.unlock();
        soon(waiter);
        ours.lock();
        Future<?> theirWaiter = start(() -> {
            old.lock();
            old.unlock();
        });
        pause(200);
        assertFalse(theirWaiter.isDone());
        ours.unlock();
        soon(theirWaiter);
    }

    @Test
    void oneCandidateLeadsAtATime() throws Exception {
        TestServer server = server();
        List<LockRegistryLeaderInitiator> initiators = new ArrayList<>();
        List<Context> leaders = new ArrayList<>();
        for (String id : List.of("a", "b")) {
            LockRegistryLeaderInitiator initiator = new LockRegistryLeaderInitiator(registry(server), new DefaultCandidate(id, "leader"));
            initiator.setHeartBeatMillis(50);
            initiator.setBusyWaitMillis(20);
            open((AutoCloseable) initiator::destroy);
            initiators.add(initiator);
            initiator.start();
            leaders.add(initiator.getContext());
        }
        eventually("one leads", () -> leaders.get(0).isLeader() != leaders.get(1).isLeader());
        pause(300);
        int first = leaders.get(0).isLeader() ? 0 : 1;
        assertFalse(leaders.get(1 - first).isLeader());
        // The leader yields, and the other one leads.
        leaders.get(first).yield();
        eventually("the other one leads", () -> leaders.get(1 - first).isLeader());
        initiators.get(1 - first).stop();
        eventually("the first one leads again", () -> leaders.get(first).isLeader());
        server.ask("DEL", "registry:leader");
        eventually("it is one again", () -> leaders.get(first).isLeader());
    }

    @Test
    void applicationHasRegistry() {
        TestServer server = server();
        new ApplicationContextRunner()
            .withConfiguration(AutoConfigurations.of(DataRedisAutoConfiguration.class, RedisLockClientAutoConfiguration.class))
            .withPropertyValues("spring.data.redis.port=" + server.port, "spring.data.redis.host=127.0.0.1", "redis-lock.registry-key=registry",
                "redis-lock.lease=10s")
            .run(context -> {
                assertInstanceOf(RedisLockClientRegistry.class, context.getBean(LockRegistry.class));
                Lock lock = context.getBean(LockRegistry.class).obtain("door");
                lock.lock();
                assertTrue(Long.parseLong(server.ask("PTTL", KEY)) <= 10_000);
                assertEquals(1, server.connections().size());
                lock.unlock();
                context.getBean(Locks.class).lock("own").run(hold -> assertTrue(hold.isHeld()));
            });
        eventually("closed with the context", () -> server.connections().isEmpty());
        new ApplicationContextRunner().withConfiguration(AutoConfigurations.of(RedisLockClientAutoConfiguration.class))
            .run(context -> assertTrue(context.getBeansOfType(Locks.class).isEmpty()));
    }
}
