package redislock.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import redislock.Hold;
import redislock.LockLostException;
import redislock.LockSpec;
import redislock.LockTimeoutException;
import redislock.Locks;
import redislock.ModuleNeededException;
import redislock.Observation;

class WithoutModuleTest extends Tests {
    @Test
    void locksWorkWithoutModule() throws Exception {
        TestServer server = open(TestServer.plain());
        Locks locks = process(server);
        Locks other = process(server);
        for (LockSpec spec : List.of(locks.lock("door"), locks.lock("door").reentrant("o"))) {
            Hold hold = acquire(spec);
            assertEquals(Optional.empty(), other.lock("door").tryAcquire());
            fails(LockTimeoutException.class, other.lock("door").waitAtMost(Duration.ofMillis(100))::acquire);
            hold.extend(Duration.ofMinutes(1));
            start(() -> {
                pause(100);
                hold.release();
            });
            took(80, 1000, () -> {
                Hold next = acquire(other, "door");
                server.ask("DEL", "door");
                fails(LockLostException.class, next::release);
            });
        }
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        List<Future<?>> all = new ArrayList<>();
        for (int n = 0; n < 30; n++) {
            Locks use = n % 2 == 0 ? locks : other;
            all.add(start(() -> use.lock("door").run(hold -> {
                most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                inside.decrementAndGet();
            })));
        }
        for (Future<?> one : all) {
            one.get(20, TimeUnit.SECONDS);
        }
        assertEquals(1, most.get());
    }

    @Test
    void featuresOfModuleNeedIt() throws Exception {
        TestServer server = open(TestServer.plain());
        Locks locks = process(server);
        LockSpec door = locks.lock("door");
        for (LockSpec spec : List.of(door.session(), door.shared(), door.permits(3))) {
            fails(ModuleNeededException.class, spec::acquire);
            fails(ModuleNeededException.class, spec::tryAcquire);
        }
        fails(ModuleNeededException.class, acquire(locks, "door")::fence);
    }

    @Test
    void lossIsSeenWithoutModule() throws Exception {
        TestServer server = open(TestServer.plain());
        Locks locks = process(server);
        for (LockSpec spec : List.of(locks.lock("door"), locks.lock("door").reentrant("o"))) {
            Hold hold = acquire(spec);
            Future<?> lost = lost(hold);
            hold.extend(Duration.ofMinutes(1));
            server.ask("DEL", "door");
            soon(lost);
            fails(LockLostException.class, hold::release);
        }
        BlockingQueue<Optional<String>> seen = new LinkedBlockingQueue<>();
        try (Observation observation = process(server).observe("door", seen::add)) {
            assertEquals(Optional.empty(), seen.poll(1, TimeUnit.SECONDS));
            Hold hold = acquire(locks.lock("door").label("one").reentrant("o"));
            assertEquals(Optional.of("one"), seen.poll(1, TimeUnit.SECONDS));
            hold.release();
            assertEquals(Optional.empty(), seen.poll(2, TimeUnit.SECONDS));
        }
    }

    @Test
    void holdersOfOtherPackagesAreRespected() throws Exception {
        TestServer server = open(TestServer.plain());
        server.ask("SET", "door", "other", "NX", "PX", "300");
        took(200, 1500, () -> {
            Hold hold = acquire(process(server), "door");
            assertEquals("", server.ask("SET", "door", "other", "NX", "PX", "300"));
            hold.release();
        });
        server.ask("SET", "door", "other", "PX", "4000");
        // Polling, with pauses of 100 ms, has no number of attempts.
        took(3500, 5000, () -> acquire(process(server), "door").release());
    }
}
