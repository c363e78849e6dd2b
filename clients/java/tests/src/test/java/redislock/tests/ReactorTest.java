package redislock.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import reactor.core.Disposable;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import redislock.Hold;
import redislock.LockSpec;
import redislock.Locks;

/** The recipe for Reactor: a Mono that holds a lock while its work runs, whatever the end of the work. */
class ReactorTest extends Tests {
    static <T> Mono<T> locked(LockSpec lock, Function<Hold, Mono<T>> work) {
        // A Mono that is cancelled as the lock is granted discards it.
        return Mono.usingWhen(Mono.fromFuture(lock::acquireAsync).doOnDiscard(Hold.class, Hold::releaseAsync), work,
            hold -> Mono.fromFuture(hold::releaseAsync));
    }

    @Test
    void monosExcludeEachOther() throws Exception {
        TestServer server = server();
        LockSpec door = process(server).lock("door");
        AtomicInteger inside = new AtomicInteger();
        Mono<Integer> work = locked(door, hold -> Mono.just(inside.incrementAndGet()).delayElement(Duration.ofMillis(1))
            .doOnNext(n -> inside.decrementAndGet()));
        assertEquals(50, Flux.range(0, 50).flatMap(n -> work).reduce(Integer::sum).block());
        nothingLeft(server, "door");
    }

    @Test
    void cancelledMonoLeavesNothing() throws Exception {
        TestServer server = server();
        Locks holder = process(server);
        Locks locks = process(server);
        for (int n = 0; n < 100; n++) {
            Hold hold = acquire(holder, "door");
            Disposable waiting = locked(locks.lock("door"), other -> Mono.never()).subscribe();
            eventually("it waits", () -> server.info("door", "waiters").equals("1"));
            if (n == 0) {
                waiting.dispose();
                eventually("it has withdrawn", () -> server.info("door", "waiters").equals("0"));
            }
            endAtGrant(hold, n * 10L, waiting::dispose);
            took(0, 5000, () -> nothingLeft(server, "door"));
        }
    }
}
