package redislock;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/**
 * Has the threads, the clock and the connections of an engine. Callers run their part of the engine themselves, under its lock, and write what
 * it sends and read what it waits for after that. Timers run in the thread that the JDK has for them.
 */
final class Loop implements Engine.Host {
    /** Runs what may take long. */
    static final Executor THREADS = Loop::start;
    private static final Map<String, Loop> LOOPS = new ConcurrentHashMap<>();

    final Engine engine;
    final Server server;
    private final ReentrantLock lock = new ReentrantLock();
    private final long epoch = System.nanoTime() - TimeUnit.HOURS.toNanos(1);
    private final List<Runnable> outside = new ArrayList<>();
    /** The connections by which this step sends something. */
    final Set<Connection> sending = new LinkedHashSet<>();
    private long wakeAt = Long.MAX_VALUE;
    private int users;

    private Loop(Server server) {
        this.server = server;
        engine = new Engine(this, server.database());
        // The thread of the timers is there from now on, or an error before anything is under way.
        locked(() -> wake(now()));
    }

    /** Returns the one loop of a server in this process. */
    static Loop open(Server server) {
        return LOOPS.compute(server.id(), (id, old) -> {
            Loop loop = old != null ? old : new Loop(server);
            loop.users++;
            return loop;
        });
    }

    /** Closes the connections when the last Locks are closed. */
    void leave() {
        if (LOOPS.compute(server.id(), (id, loop) -> --users > 0 ? loop : null) == null) {
            run(engine::close);
        }
    }

    @Override
    public long now() {
        return System.nanoTime() - epoch;
    }

    @Override
    public void outside(Runnable task) {
        outside.add(task);
    }

    @Override
    public Engine.Port open(Link link, String address, long delay) {
        Connection connection = new Connection(this, link, address, delay);
        if (!engine.isClosed) {
            start(connection);
        }
        return connection;
    }

    static void start(Runnable task) {
        Thread thread = new Thread(task, "redis-lock-client");
        thread.setDaemon(true);
        try {
            thread.start();
        } catch (OutOfMemoryError e) {
            // This process has too many threads.
            CompletableFuture.delayedExecutor(Words.RETRY, TimeUnit.NANOSECONDS, Runnable::run).execute(() -> start(task));
        }
    }

    static <T> T get(CompletableFuture<T> future) throws InterruptedException {
        try {
            return future.get();
        } catch (ExecutionException e) {
            throw new IllegalStateException(e.getCause());
        }
    }

    /** Runs a step of the engine, and waits until it calls back. */
    <T> T call(Consumer<Consumer<T>> step) {
        CompletableFuture<T> future = new CompletableFuture<>();
        run(() -> step.accept(value -> outside(() -> future.complete(value))), future);
        return future.join();
    }

    /** Runs a step of the engine. */
    void run(Runnable step) {
        run(step, null);
    }

    /** Runs a step of the engine, and may read a while until what the caller waits for is there. */
    void run(Runnable step, CompletableFuture<?> awaited) {
        run(step, awaited, true);
    }

    private void run(Runnable step, CompletableFuture<?> awaited, boolean mayWait) {
        List<Runnable> tasks = new ArrayList<>();
        List<Connection> touched = new ArrayList<>();
        List<Connection> writes = new ArrayList<>();
        locked(() -> {
            step.run();
            wake(engine.work());
            tasks.addAll(outside);
            outside.clear();
            touched.addAll(sending);
            sending.clear();
            touched.stream().filter(Connection::claim).forEach(writes::add);
        });
        writes.forEach(connection -> connection.write(mayWait));
        tasks.forEach(engine::guard);
        touched.forEach(connection -> connection.read(awaited));
    }

    void locked(Runnable step) {
        lock.lock();
        try {
            step.run();
        } finally {
            lock.unlock();
        }
    }

    /** Sets the timer of the JDK for the next timer of the engine, unless it is set already. */
    private void wake(long at) {
        if (at < wakeAt) {
            wakeAt = at;
            CompletableFuture.delayedExecutor(Math.max(0, at - now()), TimeUnit.NANOSECONDS, Runnable::run).execute(() -> run(() -> {
                wakeAt = wakeAt == at ? Long.MAX_VALUE : wakeAt;
            }, null, false));
        }
    }
}
