package redislock;

import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/** A lock of java.util.concurrent: re-entrant by thread. */
final class ThreadLock implements Lock {
    /** What the threads of a process hold. */
    record Key(Thread thread, String name, LockSpec.Kind kind) { }

    static final class Entry {
        final Hold hold;
        int count = 1;

        Entry(Hold hold) {
            this.hold = hold;
        }
    }

    private final LockSpec spec;

    ThreadLock(LockSpec spec) {
        this.spec = spec;
    }

    @Override
    public void lock() {
        if (!enter()) {
            keep(spec.acquireUninterruptibly());
        }
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        if (!enter()) {
            keep(spec.acquire());
        }
    }

    @Override
    public boolean tryLock() {
        if (enter()) {
            return true;
        }
        Optional<Hold> hold = spec.tryAcquire();
        hold.ifPresent(this::keep);
        return hold.isPresent();
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        if (!enter()) {
            try {
                keep(spec.waitAtMost(java.time.Duration.ofNanos(Math.max(0, unit.toNanos(time)))).acquire());
            } catch (LockTimeoutException e) {
                return false;
            }
        }
        return true;
    }

    @Override
    public void unlock() {
        Entry entry = spec.locks.threads.get(key());
        if (entry == null) {
            throw new IllegalMonitorStateException("this thread does not hold \"" + spec.name() + "\"");
        }
        if (--entry.count == 0) {
            spec.locks.threads.remove(key());
            try {
                entry.hold.release();
            } catch (LockLostException e) {
                throw (IllegalMonitorStateException) new IllegalMonitorStateException(e.getMessage()).initCause(e);
            }
        }
    }

    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("a distributed lock has no conditions");
    }

    @Override
    public String toString() {
        return "lock \"" + spec.name() + "\"";
    }

    /** Notes one more acquisition by a thread that holds the lock. */
    private boolean enter() {
        Entry entry = spec.locks.threads.get(key());
        if (entry != null && !entry.hold.isHeld()) {
            throw Failure.LOST.on(spec.name(), "acquire");
        }
        if (entry != null) {
            entry.count++;
        }
        return entry != null;
    }

    private void keep(Hold hold) {
        spec.locks.threads.put(key(), new Entry(hold));
    }

    private Key key() {
        return new Key(Thread.currentThread(), spec.name(), spec.kind);
    }
}
