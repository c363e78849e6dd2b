package redislock;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;

/**
 * A lock that is held, or several. Any thread may use it. Keep it until it is released: a lock whose Hold the garbage collection takes is
 * released with a warning, unless it has a lease that is not renewed.
 */
public final class Hold implements AutoCloseable {
    private final Loop loop;
    private final List<Claim> claims;
    /** Keeps the locks of an owner that has acquired them again, until the last of its Holds is collected. */
    private final List<Object> first = new ArrayList<>(1);
    private final AtomicReference<CompletableFuture<Failure>> released = new AtomicReference<>();
    private final AtomicBoolean isTold = new AtomicBoolean();

    Hold(Loop loop, List<Claim> claims) {
        this.loop = loop;
        this.claims = claims;
        loop.locked(() -> claims.forEach(claim -> first.add(claim.first(this))));
    }

    /** Returns the name of the lock; several are separated by commas. */
    public String name() {
        return claims.stream().map(claim -> claim.name).collect(Collectors.joining(", "));
    }

    /** Returns the token of the lock; several are separated by commas. */
    public String token() {
        return claims.stream().map(claim -> claim.token).collect(Collectors.joining(", "));
    }

    /** Returns whether the lock is held, as far as this process knows. */
    public boolean isHeld() {
        return loop.<Boolean>call(then -> then.accept(claims.stream().allMatch(Claim::isHeld)));
    }

    /** Returns what is completed when the lock is lost, and never otherwise. */
    public CompletionStage<LockLostException> lost() {
        CompletableFuture<LockLostException> stage = new CompletableFuture<>();
        String name = name();
        onLost(() -> stage.complete((LockLostException) Failure.LOST.on(name, "hold")));
        return stage.minimalCompletionStage();
    }

    /** Runs a task one time when the lock is lost, in a thread of its own. */
    public void onLost(Runnable task) {
        onLost(task, Runnable::run);
    }

    /** Runs a task one time when the lock is lost. */
    public void onLost(Runnable task, Executor executor) {
        AtomicBoolean isFirst = new AtomicBoolean(true);
        AtomicBoolean isTold = this.isTold;
        loop.run(() -> claims.forEach(claim -> claim.onLoss(() -> {
            if (isFirst.getAndSet(false)) {
                isTold.set(true);
                // Not in the thread of another caller, which reads.
                Loop.start(() -> loop.engine.guard(() -> executor.execute(task)));
            }
        })));
    }

    /** Sets the lease, from now on; nothing is added. */
    public void extend(Duration lease) {
        LockSpec.checkLease(lease);
        for (Claim claim : claims) {
            Failure failure = loop.call(then -> {
                if (claim.state == Claim.State.HELD) {
                    claim.extend(lease.toNanos(), r -> then.accept(claim.asHolder(r)));
                } else {
                    then.accept(Failure.LOST);
                }
            });
            check(failure, "extend");
        }
    }

    /**
     * Returns the next fencing token of the lock: a number higher than all that its holders had before. The resource refuses a write whose token
     * is lower than one that it has seen. It needs the module.
     */
    public long fence() {
        Claim claim = claims.get(0);
        String counter = claims.size() > 1 ? null : Words.counter(claim.name, loop.engine.isCluster);
        if (counter == null) {
            throw Failure.argument("it has no counter of fencing tokens: several locks, or braces that name no slot").on(name(), "fence");
        }
        long[] token = {0};
        Failure failure = loop.call(then -> {
            if (claim.state != Claim.State.HELD) {
                then.accept(Failure.LOST);
                return;
            }
            loop.engine.ask(claim.fenceCommand(counter), r -> {
                token[0] = r.isFailed() ? 0 : r.value().number();
                then.accept(claim.asHolder(r));
            });
        });
        check(failure, "fence");
        return token[0];
    }

    /** Leaves the lock as it is, and returns its token: {@link LockSpec#attach} takes it over by that, in another process as well. */
    public String detach() {
        Failure failure = loop.call(then -> then.accept(
            claims.size() > 1 ? Failure.argument("several locks have no common token") : claims.get(0).detach()));
        check(failure, "detach");
        released.set(CompletableFuture.completedFuture(Failure.LOST));
        return token();
    }

    /**
     * Releases the lock, and waits for the reply. What cannot be sent in an outage is sent later. A second call has the result of the first.
     *
     * @throws LockLostException if the lock was lost before
     */
    public void release() {
        check(start(true).join(), "release");
    }

    /** Releases the lock without a thread that waits. */
    public CompletableFuture<Void> releaseAsync() {
        return start(false).thenAcceptAsync(failure -> check(failure, "release"));
    }

    /**
     * Does as {@link #release}, or nothing if the lock is released already.
     *
     * @throws LockLostException if the lock was lost, and neither {@link #onLost} nor {@link #lost} has told it
     */
    @Override
    public void close() {
        if (released.get() == null) {
            Failure failure = start(true).join();
            check(failure == Failure.LOST && isTold.get() ? null : failure, "release");
        }
    }

    private CompletableFuture<Failure> start(boolean isAwaited) {
        CompletableFuture<Failure> future = new CompletableFuture<>();
        if (released.compareAndSet(null, future)) {
            loop.run(() -> Attempt.release(claims, null, failure -> loop.outside(() -> future.complete(failure))), isAwaited ? future : null);
        }
        return released.get();
    }

    private void check(Failure failure, String operation) {
        if (failure != null) {
            throw failure.on(name(), operation);
        }
    }
}
