package redislock;

import java.io.IOException;
import java.lang.System.Logger.Level;
import java.net.Socket;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/**
 * Has the threads, the clock and the sockets of an engine. One thread for each connection opens it and reads; timers run in the thread that
 * the JDK has for them. Callers run their part of the engine themselves, under its lock, and write what it sends after that: whoever finds
 * another thread writing leaves it to that one.
 */
final class Loop implements Engine.Host {
    /** Runs what may take long. */
    static final Executor THREADS = Loop::start;
    private static final Map<String, Loop> LOOPS = new HashMap<>();
    private static final ReentrantLock LOOPS_LOCK = new ReentrantLock();
    /** A server that has so many bytes without a reply may not read: a timer must not wait for it. */
    private static final int MAX_UNANSWERED = 16 << 10;

    final Engine engine;
    private final Server server;
    private final ReentrantLock lock = new ReentrantLock();
    private final long epoch = System.nanoTime() - TimeUnit.HOURS.toNanos(1);
    private List<Runnable> outside = new ArrayList<>();
    private final Set<SocketPort> unwritten = new HashSet<>();
    private long wakeAt = Long.MAX_VALUE;
    private int users;

    private Loop(Server server) {
        this.server = server;
        engine = new Engine(this, server.database());
    }

    /** Returns the one loop of a server in this process. */
    static Loop open(Server server) {
        LOOPS_LOCK.lock();
        try {
            Loop loop = LOOPS.computeIfAbsent(server.id(), id -> new Loop(server));
            loop.users++;
            return loop;
        } finally {
            LOOPS_LOCK.unlock();
        }
    }

    /** Closes the connections when the last Locks are closed. */
    void leave() {
        LOOPS_LOCK.lock();
        try {
            if (--users > 0) {
                return;
            }
            LOOPS.remove(server.id());
        } finally {
            LOOPS_LOCK.unlock();
        }
        run(engine::close);
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
        SocketPort port = new SocketPort(link, address, delay);
        if (!engine.isClosed) {
            start(port);
        }
        return port;
    }

    private static void start(Runnable task) {
        Thread thread = new Thread(task, "redis-lock-client");
        thread.setDaemon(true);
        thread.start();
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
        run(() -> step.accept(future::complete));
        return future.join();
    }

    /** Runs a step of the engine. */
    void run(Runnable step) {
        run(step, true);
    }

    private void run(Runnable step, boolean mayWait) {
        List<Runnable> tasks;
        List<SocketPort> ports;
        lock.lock();
        try {
            step.run();
            wake(engine.work());
            tasks = outside.isEmpty() ? List.of() : outside;
            outside = tasks.isEmpty() ? outside : new ArrayList<>();
            ports = unwritten.isEmpty() ? List.of() : unwritten.stream().filter(SocketPort::claim).toList();
            unwritten.clear();
        } finally {
            lock.unlock();
        }
        for (SocketPort port : ports) {
            if (mayWait || port.unanswered < MAX_UNANSWERED) {
                port.write();
            } else {
                start(port::write);
            }
        }
        tasks.forEach(engine::guard);
    }

    /** Sets the timer of the JDK for the next timer of the engine, unless it is set already. */
    private void wake(long at) {
        if (at < wakeAt) {
            wakeAt = at;
            CompletableFuture.delayedExecutor(Math.max(0, at - now()), TimeUnit.NANOSECONDS, Runnable::run).execute(() -> run(() -> {
                wakeAt = wakeAt == at ? Long.MAX_VALUE : wakeAt;
            }, false));
        }
    }

    /** A connection and its thread. */
    private final class SocketPort implements Engine.Port, Runnable {
        private final Link link;
        private final String address;
        private final long delay;
        private volatile Socket socket;
        private volatile boolean isClosed;
        private volatile int unanswered;
        private boolean isWriting;
        private Wire out = new Wire(null);
        private Wire batch = new Wire(null);

        SocketPort(Link link, String address, long delay) {
            this.link = link;
            this.address = address;
            this.delay = delay;
        }

        @Override
        public void send(List<String> words) {
            out.add(words);
            unwritten.add(this);
        }

        /** Closing a connection with TLS may wait for what is being written, so that another thread does it. */
        @Override
        public void close() {
            isClosed = true;
            if (socket != null) {
                start(this::closeSocket);
            }
        }

        private void closeSocket() {
            try {
                socket.close();
            } catch (IOException e) {
                engine.log(Level.DEBUG, "a connection was not closed: " + e);
            }
        }

        @Override
        public void run() {
            try {
                TimeUnit.NANOSECONDS.sleep(delay);
                if (isClosed) {
                    return;
                }
                socket = server.connector().connect(address);
                socket.setTcpNoDelay(true);
                socket.setSoTimeout(0);
                Server.Credentials user = server.credentials() == null ? null : server.credentials().call();
                Wire in = new Wire(socket.getInputStream());
                Loop.this.run(() -> link.opened(user == null ? null : user.user(), user == null ? null : user.password()));
                List<Value> values = new ArrayList<>();
                while (!isClosed) {
                    // What has come together is handled together.
                    do {
                        values.add(in.read());
                    } while (in.size() > 0);
                    unanswered = 0;
                    Loop.this.run(() -> values.forEach(link::received));
                    values.clear();
                }
            } catch (Exception e) {
                Loop.this.run(() -> link.close(e));
            } finally {
                if (socket != null) {
                    closeSocket();
                }
            }
        }

        /** Takes over the writing, under the lock. */
        private boolean claim() {
            if (isWriting || isClosed || out.size() == 0) {
                return false;
            }
            isWriting = true;
            Wire next = out;
            out = batch;
            batch = next;
            return true;
        }

        private void write() {
            for (boolean isMore = true; isMore;) {
                try {
                    unanswered += batch.size();
                    socket.getOutputStream().write(batch.array(), 0, batch.size());
                } catch (IOException e) {
                    Loop.this.run(() -> link.close(e));
                }
                batch.clear();
                lock.lock();
                try {
                    isWriting = false;
                    isMore = claim();
                } finally {
                    lock.unlock();
                }
            }
        }
    }
}
