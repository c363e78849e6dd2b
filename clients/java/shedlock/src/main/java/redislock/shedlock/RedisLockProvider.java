package redislock.shedlock;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import redislock.Hold;
import redislock.LockLostException;
import redislock.LockSpec;
import redislock.Locks;

/** Locks of ShedLock in the keys of its Redis providers, job-lock:environment:name. Only the holder of a lock releases or extends it. */
public final class RedisLockProvider implements ExtensibleLockProvider {
    private final Locks locks;
    private final String environment;
    private final boolean hasSessions;

    /** Makes a provider for the environment "default", as the other providers do. */
    public RedisLockProvider(Locks locks) {
        this(locks, "default", false);
    }

    /**
     * Makes a provider.
     *
     * @param hasSessions the lock of a job is renewed while it runs, and free a second after its process has died; it needs the module
     */
    public RedisLockProvider(Locks locks, String environment, boolean hasSessions) {
        this.locks = locks;
        this.environment = environment;
        this.hasSessions = hasSessions;
    }

    @Override
    public Optional<SimpleLock> lock(LockConfiguration job) {
        LockSpec spec = locks.lock("job-lock:" + environment + ":" + job.getName()).lease(job.getLockAtMostFor());
        return (hasSessions ? spec.session() : spec).tryAcquire().map(hold -> new JobLock(job, hold));
    }

    private final class JobLock extends AbstractSimpleLock {
        private final Hold hold;

        JobLock(LockConfiguration job, Hold hold) {
            super(job);
            this.hold = hold;
        }

        @Override
        protected void doUnlock() {
            Duration rest = Duration.between(ClockProvider.now(), lockConfiguration.getLockAtLeastUntil());
            try {
                if (rest.toMillis() <= 0) {
                    hold.release();
                } else if (hasSessions) {
                    CompletableFuture.delayedExecutor(rest.toMillis(), TimeUnit.MILLISECONDS).execute(hold::releaseAsync);
                } else {
                    hold.extend(rest);
                    hold.detach();
                }
            } catch (LockLostException e) {
                System.getLogger("redislock").log(System.Logger.Level.WARNING, "the job has run longer than its lock: " + hold.name());
            }
        }

        @Override
        protected Optional<SimpleLock> doExtend(LockConfiguration job) {
            try {
                hold.extend(job.getLockAtMostFor());
                return Optional.of(new JobLock(job, hold));
            } catch (LockLostException e) {
                return Optional.empty();
            }
        }
    }
}
