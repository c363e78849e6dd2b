package redislock.spring;

import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import org.springframework.dao.CannotAcquireLockException;
import org.springframework.integration.support.locks.DistributedLock;
import org.springframework.integration.support.locks.ExpirableLockRegistry;
import org.springframework.integration.support.locks.RenewableLockRegistry;
import org.springframework.scheduling.TaskScheduler;
import redislock.Hold;
import redislock.LockException;
import redislock.LockLostException;
import redislock.LockSpec;
import redislock.LockTimeoutException;
import redislock.Locks;

/**
 * A registry of locks in the keys of Spring's RedisLockRegistry, registryKey:key: processes with either exclude each other. A lock belongs to a
 * thread, which may acquire it again.
 */
public final class RedisLockClientRegistry implements RenewableLockRegistry<DistributedLock>, ExpirableLockRegistry<DistributedLock> {
    private record Key(String name, Thread thread) { }

    private static final class Entry {
        Hold hold;
        int count = 1;
    }

    private final Locks locks;
    private final String registryKey;
    private final Duration lease;
    private final Map<Key, Entry> held = new ConcurrentHashMap<>();
    private volatile boolean renews;

    /**
     * Makes a registry.
     *
     * @param lease the lease of a lock that is acquired without one: RedisLockRegistry has a minute
     */
    public RedisLockClientRegistry(Locks locks, String registryKey, Duration lease) {
        this.locks = locks;
        this.registryKey = registryKey;
        this.lease = lease;
    }

    @Override
    public DistributedLock obtain(Object key) {
        return new RegistryLock(name(key));
    }

    @Override
    public void renewLock(Object key) {
        renewLock(key, lease);
    }

    @Override
    public void renewLock(Object key, Duration ttl) {
        Hold hold = held.entrySet().stream().filter(one -> one.getKey().name.equals(name(key))).map(one -> one.getValue().hold)
            .filter(Hold::isHeld).findFirst().orElseThrow(() -> new IllegalStateException("Could not find mutex at " + name(key)));
        try {
            hold.extend(ttl);
        } catch (LockLostException e) {
            throw new IllegalStateException("Could not renew mutex at " + name(key), e);
        }
    }

    /** Renews all locks that are acquired from now on. It needs no scheduler. */
    @Override
    public void setRenewalTaskScheduler(TaskScheduler scheduler) {
        renews = true;
    }

    /** Does nothing: no lock is kept that is not held. */
    @Override
    public void expireUnusedOlderThan(long age) { }

    private String name(Object key) {
        if (!(key instanceof String)) {
            throw new IllegalArgumentException("the key of a lock must be a String");
        }
        return registryKey + ":" + key;
    }

    private final class RegistryLock implements DistributedLock {
        private final String name;

        RegistryLock(String name) {
            this.name = name;
        }

        @Override
        public void lock() {
            lock(lease);
        }

        @Override
        public void lock(Duration ttl) {
            try {
                acquire(ttl, LockSpec::acquireUninterruptibly);
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }

        @Override
        public void lockInterruptibly() throws InterruptedException {
            acquire(lease, LockSpec::acquire);
        }

        @Override
        public boolean tryLock() {
            try {
                return acquire(lease, spec -> spec.tryAcquire().orElse(null));
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }

        @Override
        public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
            return tryLock(Duration.ofNanos(unit.toNanos(time)), lease);
        }

        @Override
        public boolean tryLock(Duration patience, Duration ttl) throws InterruptedException {
            return acquire(ttl, spec -> spec.waitAtMost(patience.isNegative() ? Duration.ZERO : patience).acquire());
        }

        /** Acquires the lock, or extends its lease if this thread holds it. */
        private boolean acquire(Duration ttl, Acquire how) throws InterruptedException {
            Key key = new Key(name, Thread.currentThread());
            Entry entry = held.get(key);
            try {
                if (entry != null && isExtended(entry.hold, ttl)) {
                    entry.count++;
                    return true;
                }
                LockSpec spec = locks.lock(name).lease(ttl);
                Hold hold = how.acquire(renews ? spec.renew() : spec);
                if (hold != null) {
                    Entry next = entry == null ? new Entry() : entry;
                    next.count += entry == null ? 0 : 1;
                    next.hold = hold;
                    held.put(key, next);
                }
                return hold != null;
            } catch (LockTimeoutException e) {
                return false;
            } catch (LockException e) {
                throw new CannotAcquireLockException("Failed to lock mutex at " + name, e);
            }
        }

        private boolean isExtended(Hold hold, Duration ttl) {
            try {
                hold.extend(ttl);
                return true;
            } catch (LockLostException e) {
                return false;
            }
        }

        @Override
        public void unlock() {
            Key key = new Key(name, Thread.currentThread());
            Entry entry = held.get(key);
            if (entry == null) {
                throw new IllegalStateException("You do not own lock at " + name);
            }
            if (--entry.count == 0) {
                held.remove(key);
                try {
                    entry.hold.release();
                } catch (LockLostException e) {
                    throw (ConcurrentModificationException) new ConcurrentModificationException("Lock was released in the store due to "
                        + "expiration. The integrity of data protected by this lock may have been compromised.").initCause(e);
                }
            }
        }

        @Override
        public Condition newCondition() {
            throw new UnsupportedOperationException("Conditions are not supported");
        }
    }

    private interface Acquire {
        Hold acquire(LockSpec spec) throws InterruptedException;
    }
}
