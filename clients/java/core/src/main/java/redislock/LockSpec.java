package redislock;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.Lock;
import java.util.function.Consumer;

/**
 * A lock, or several, and how it is acquired. It is immutable: each method returns another one. Arguments that no server would take are an
 * {@link IllegalArgumentException} before anything is sent.
 */
public final class LockSpec implements Cloneable {
    enum Kind {
        MUTEX("LOCK.ACQUIRE"), REENTRANT("LOCK.REENTER"), SHARED("LOCK.SHARE");

        final String command;

        Kind(String command) {
            this.command = command;
        }
    }

    /** What runs while a lock is held, and has a result. */
    @FunctionalInterface
    public interface Work<T, E extends Exception> {
        /** Does the work. */
        T call(Hold hold) throws E;
    }

    /** What runs while a lock is held. */
    @FunctionalInterface
    public interface Task<E extends Exception> {
        /** Does the work. */
        void run(Hold hold) throws E;
    }

    final Locks locks;
    final List<String> names;
    Kind kind = Kind.MUTEX;
    Duration lease = Words.DEFAULT_LEASE;
    boolean session;
    int permits;
    int maxWaiters;
    String owner;
    String label;
    private Duration patience;
    private boolean hasLease;
    private boolean renew;
    private boolean interrupts;

    LockSpec(Locks locks, List<String> names) {
        this.locks = locks;
        this.names = names.stream().sorted().distinct().toList();
        check(!names.isEmpty() && this.names.size() == names.size() && !names.contains(""), "names, each one time");
    }

    /**
     * Sets the time after which the lock is free unless it is extended. Without it a lock has a lease of 30 seconds, which is renewed until
     * the lock is released.
     *
     * @param lease 1 ms to 100 years
     */
    public LockSpec lease(Duration lease) {
        checkLease(lease);
        return with(spec -> {
            spec.lease = lease;
            spec.hasLease = true;
        });
    }

    /** Renews a lease that {@link #lease} has set each time that a third of it has passed. */
    public LockSpec renew() {
        return with(spec -> spec.renew = true);
    }

    /**
     * Lets the server renew the lease while this process is connected. The lock is free a second after the process has ended, however it ends.
     * It needs the module, and a lease of 100 ms or more.
     */
    public LockSpec session() {
        return with(spec -> spec.session = true);
    }

    /** Acquires a share: any number of holders at a time, and no holder of the lock alone. It needs the module. */
    public LockSpec shared() {
        return kind(Kind.SHARED);
    }

    /** Acquires one of n permits of a semaphore: a share, of which there are n at most. It needs the module. */
    public LockSpec permits(int n) {
        check(n > 0, "permits from 1 to 2147483647");
        return kind(Kind.SHARED).with(spec -> spec.permits = n);
    }

    /**
     * Lets an owner acquire the lock again while it holds it. Each acquisition has its Hold; the lock is free after the last release. Owners
     * are names within this process: a request, a job.
     */
    public LockSpec reentrant(String owner) {
        check(!owner.isEmpty(), "an owner with a name");
        return kind(Kind.REENTRANT).with(spec -> spec.owner = owner);
    }

    /** Sets what people see of the holder in LOCK.INFO: 1 to 64 printable characters of ASCII, without spaces. */
    public LockSpec label(String label) {
        check(label.matches("[!-~]{1,64}"), "a label of 1 to 64 characters of ASCII, without spaces");
        return with(spec -> spec.label = label);
    }

    /** Ends the call with a {@link LockQueueFullException} if n wait for the lock already, in this process or at the server. */
    public LockSpec maxWaiters(int n) {
        check(n > 0, "from 1 to 2147483647 waiters");
        return with(spec -> spec.maxWaiters = n);
    }

    /** Sets the patience of a wait, which has no limit otherwise. A wait of 0 asks one time. */
    public LockSpec waitAtMost(Duration patience) {
        check(!patience.isNegative(), "a patience that is not negative");
        return with(spec -> spec.patience = patience.compareTo(Words.MAX_LEASE) < 0 ? patience : Words.MAX_LEASE);
    }

    /** Lets {@link #call} and {@link #run} interrupt the thread of the work when the lock is lost. */
    public LockSpec interruptOnLoss() {
        return with(spec -> spec.interrupts = true);
    }

    /**
     * Waits until it holds the lock. A wait goes on while a server restarts; without a patience for a minute. No wait that ends leaves
     * anything behind in the server.
     *
     * @throws InterruptedException if the thread is interrupted; the wait has been withdrawn
     * @throws LockTimeoutException if another holder had the lock until the patience was over
     * @throws LockConnectionException in an outage
     */
    public Hold acquire() throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        Attempt attempt = start(true);
        try {
            return hold(Loop.get(attempt.future), "acquire");
        } catch (InterruptedException e) {
            locks.loop.run(() -> attempt.cancel(Failure.CANCELLED));
            throw e;
        }
    }

    /** Acquires the lock if it is free, by one request. */
    public Optional<Hold> tryAcquire() {
        Outcome outcome = locks.start(this, null, true, true).future.join();
        boolean isBusy = outcome.failure() != null && outcome.failure().kind() == Failure.Kind.TIMEOUT;
        return isBusy ? Optional.empty() : Optional.of(hold(outcome, "acquire"));
    }

    /** Acquires the lock without a thread that waits. {@link CompletableFuture#cancel} withdraws the wait. */
    public CompletableFuture<Hold> acquireAsync() {
        Attempt attempt = start(false);
        CompletableFuture<Hold> result = new CompletableFuture<>();
        attempt.future.thenAcceptAsync(outcome -> {
            try {
                result.complete(hold(outcome, "acquire"));
            } catch (RuntimeException e) {
                result.completeExceptionally(e);
            }
        });
        result.whenComplete((hold, error) -> {
            if (error != null) {
                locks.loop.run(() -> attempt.cancel(Failure.CANCELLED));
            }
        });
        return result;
    }

    /** Does as {@link #acquire}, and keeps its place in the queue if the thread is interrupted, which it still is afterwards. */
    public Hold acquireUninterruptibly() {
        return hold(start(true).future.join(), "acquire");
    }

    /**
     * Runs work while it holds the lock, and waits for the release, also if the work fails.
     *
     * @throws LockLostException if the lock was lost; suppressed if the work fails
     */
    public <T, E extends Exception> T call(Work<T, E> work) throws E, InterruptedException {
        Hold hold = acquire();
        Block block = new Block(hold, interrupts);
        try (block) {
            return work.call(hold);
        } catch (Exception e) {
            if (e instanceof InterruptedException && block.hasInterrupted) {
                throw Failure.LOST.on(hold.name(), "hold");
            }
            throw e;
        }
    }

    /** Does as {@link #call} for work without a result. */
    public <E extends Exception> void run(Task<E> task) throws E, InterruptedException {
        this.<Void, E>call(hold -> {
            task.run(hold);
            return null;
        });
    }

    /** Takes over a lock that {@link Hold#detach} has left, by its token, with the kind and the lease of this. */
    public Hold attach(String token) {
        check(!token.isEmpty() && names.size() == 1, "a token, and one name");
        checkAll();
        Claim claim = locks.claim(this, name(), token);
        Outcome outcome = locks.loop.call(claim::attach);
        return hold(outcome, "attach");
    }

    /** Returns the same lock for java.util.concurrent: re-entrant by thread, and fair. Threads have conditions elsewhere. */
    public Lock asLock() {
        checkAll();
        return new ThreadLock(this);
    }

    boolean renews() {
        return renew || !hasLease && !session;
    }

    String name() {
        return String.join(", ", names);
    }

    private Attempt start(boolean isAwaited) {
        return locks.start(this, patience, patience != null && patience.isZero(), isAwaited);
    }

    private Hold hold(Outcome outcome, String operation) {
        if (outcome.failure() != null) {
            throw outcome.failure().on(name(), operation);
        }
        return new Hold(locks.loop, outcome.claims());
    }

    private LockSpec kind(Kind one) {
        check(kind == Kind.MUTEX || kind == one, "one kind: a share is not re-entrant");
        return with(spec -> spec.kind = one);
    }

    private LockSpec with(Consumer<LockSpec> change) {
        try {
            LockSpec copy = (LockSpec) clone();
            change.accept(copy);
            return copy;
        } catch (CloneNotSupportedException e) {
            throw new AssertionError(e);
        }
    }

    /** Checks what several options have to do with each other. */
    void checkAll() {
        check(!session || lease.compareTo(Words.MIN_SESSION_LEASE) >= 0, "a lease of 100 ms or more for a session");
        check(!session || !renew, "a session or a renewal: the server renews a session");
    }

    static void checkLease(Duration lease) {
        check(lease.compareTo(Words.MIN_LEASE) >= 0 && lease.compareTo(Words.MAX_LEASE) <= 0, "a lease from 1 ms to 100 years");
    }

    private static void check(boolean isRight, String needed) {
        if (!isRight) {
            throw new IllegalArgumentException("a lock needs " + needed);
        }
    }
}
