package redislock;

import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;

/**
 * Locks on one server, or in one cluster. All threads may use them, and they are cheap: all of a process on one server share one connection
 * and one thread.
 */
public final class Locks implements AutoCloseable {
    final Loop loop;
    /** What the threads hold by {@link LockSpec#asLock}. */
    final Map<ThreadLock.Key, ThreadLock.Entry> threads = new ConcurrentHashMap<>();
    private final Set<Claim> held = new HashSet<>();
    private final Set<Attempt> attempts = new HashSet<>();
    private final Set<Observer> observers = new HashSet<>();
    private boolean isClosed;

    private Locks(Loop loop) {
        this.loop = loop;
    }

    /** Returns the locks of a server by its address: redis://user:password@host:6379/0, or rediss:// with TLS. Nothing is sent yet. */
    public static Locks connect(String address) {
        return of(Server.of(address));
    }

    /** Returns the locks of a server. Nothing is sent yet. */
    public static Locks of(Server server) {
        return new Locks(Loop.open(server));
    }

    /** Returns a lock by its name, which is its key. */
    public LockSpec lock(String name) {
        return new LockSpec(this, List.of(name));
    }

    /**
     * Returns several locks as one: they are acquired in the order of their names, within one patience, and the Hold is that of all. It is lost
     * when one of them is. Locks that are acquired one by one elsewhere must be in the same order.
     */
    public LockSpec several(String... names) {
        return new LockSpec(this, List.of(names));
    }

    /**
     * Reports the label of the holder of a lock, or that there is none, now and at each change of the holder, in one thread at a time. In an
     * outage nothing is reported.
     */
    public Observation observe(String name, Consumer<Optional<String>> listener) {
        List<CompletableFuture<Void>> last = new java.util.ArrayList<>(List.of(CompletableFuture.completedFuture(null)));
        LockSpec spec = lock(name);
        Observer observer = new Observer(loop.engine, spec.name(), label ->
            last.set(0, last.get(0).handleAsync((done, error) -> {
                loop.engine.guard(() -> listener.accept(label));
                return null;
            }, Loop.THREADS)));
        loop.run(() -> {
            if (!isClosed && observers.add(observer)) {
                observer.start();
            }
        });
        return () -> loop.run(() -> {
            observers.remove(observer);
            observer.stop();
        });
    }

    /**
     * Ends what waits or observes, releases what is still held, unless it has a lease that is not renewed, waits until the server has all
     * releases, but not longer than 10 seconds, and closes the connection if nothing else of the process uses it.
     */
    @Override
    public void close() {
        boolean wasClosed = loop.call(then -> {
            boolean was = isClosed;
            isClosed = true;
            observers.forEach(Observer::stop);
            Set.copyOf(attempts).forEach(attempt -> attempt.cancel(Failure.CLOSED));
            Set.copyOf(held).forEach(claim -> {
                claim.engine.log(System.Logger.Level.WARNING, "a lock was not released before its Locks were closed: " + claim.name);
                claim.count = 1;
                claim.abandon();
            });
            loop.engine.settle(null, was ? 0 : 2 * Words.SILENCE, () -> then.accept(was));
        });
        if (!wasClosed) {
            loop.leave();
        }
    }

    Claim claim(LockSpec spec, String name, String token) {
        String text = token != null ? token : spec.label != null ? spec.label + ":" + Words.random() : Words.random();
        return new Claim(loop.engine, spec, name, text, held);
    }

    Attempt start(LockSpec spec, Duration patience, boolean isTry, boolean isAwaited) {
        spec.checkAll();
        List<Claim> claims = spec.names.stream().map(name -> claim(spec, name, null)).toList();
        long deadline = patience == null ? 0 : loop.now() + patience.toNanos();
        Attempt attempt = new Attempt(claims, deadline, isTry, attempts);
        loop.run(() -> {
            if (isClosed) {
                attempt.finish(Outcome.of(Failure.CLOSED));
            } else {
                attempt.start();
            }
        }, isAwaited ? attempt.future : null);
        return attempt;
    }
}
