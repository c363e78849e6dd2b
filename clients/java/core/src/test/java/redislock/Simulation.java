package redislock;

import java.io.EOFException;
import java.net.ConnectException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.PriorityQueue;
import java.util.Set;
import java.util.function.BooleanSupplier;

/** Simulated time, and connections to a server in the same process. A subclass is the server. */
class Simulation implements Engine.Host {
    static final long LATENCY = Words.MS / 10;

    /** A connection: replies leave it in the order of the commands. */
    final class Connection implements Engine.Port {
        final Link link;
        final Engine engine;
        final Set<String> channels = new HashSet<>();
        final Set<String> tracked = new HashSet<>();
        boolean tracks;
        boolean isClosed;
        private final Deque<Value[]> replies = new ArrayDeque<>();

        Connection(Engine engine, Link link) {
            this.engine = engine;
            this.link = link;
        }

        @Override
        public void send(List<String> words) {
            List<String> copy = List.copyOf(words);
            after(LATENCY, () -> {
                if (!isClosed) {
                    Value[] slot = {null};
                    replies.add(slot);
                    command(this, copy, slot);
                }
            });
        }

        void reply(Value[] slot, Value value) {
            slot[0] = value;
            while (!replies.isEmpty() && replies.peek()[0] != null && !isSilent) {
                push(replies.poll()[0]);
            }
        }

        void push(Value value) {
            after(LATENCY, () -> {
                if (!isClosed) {
                    link.received(value);
                    work(engine);
                }
            });
        }

        void cut() {
            isClosed = true;
            connections.remove(this);
            after(LATENCY, () -> {
                link.close(new EOFException("cut"));
                work(engine);
            });
        }

        @Override
        public void close() {
            isClosed = true;
            connections.remove(this);
            after(LATENCY, () -> closed(this));
        }
    }

    final List<Connection> connections = new ArrayList<>();
    boolean isDown;
    boolean isSilent;
    private final PriorityQueue<Engine.Timer> events = new PriorityQueue<>();
    private final List<Engine> engines = new ArrayList<>();
    private long now = 3600 * Words.SECOND;
    private long count;

    /** Returns an engine of a process of its own, whose connections lead here. */
    Engine engine() {
        Engine[] engine = {null};
        engine[0] = new Engine(new Engine.Host() {
            @Override
            public long now() {
                return now;
            }

            @Override
            public Engine.Port open(Link link, String address, long delay) {
                return Simulation.this.open(engine[0], link, delay);
            }

            @Override
            public void outside(Runnable task) {
                after(0, task);
            }
        }, 0);
        engines.add(engine[0]);
        return engine[0];
    }

    void command(Connection connection, List<String> words, Value[] slot) {
        throw new UnsupportedOperationException(words.toString());
    }

    void closed(Connection connection) { }

    @Override
    public long now() {
        return now;
    }

    @Override
    public void outside(Runnable task) {
        after(0, task);
    }

    @Override
    public Engine.Port open(Link link, String address, long delay) {
        return open(null, link, delay);
    }

    private Connection open(Engine engine, Link link, long delay) {
        Connection connection = new Connection(engine, link);
        after(delay + LATENCY, () -> {
            if (connection.isClosed) {
                return;
            }
            if (isDown) {
                link.close(new ConnectException("connection refused"));
            } else {
                connections.add(connection);
                link.opened(null);
            }
            work(engine);
        });
        return connection;
    }

    void after(long delay, Runnable task) {
        events.add(new Engine.Timer(now + delay, count++, task));
    }

    void work(Engine engine) {
        engine.work();
    }

    /** Lets time pass until a condition holds, but not longer than a limit. It returns whether the condition holds. */
    boolean until(BooleanSupplier condition, long limit) {
        long end = now + limit;
        while (!condition.getAsBoolean()) {
            long next = events.isEmpty() ? Long.MAX_VALUE : events.peek().at();
            for (Engine engine : engines) {
                next = Math.min(next, engine.work());
            }
            next = Math.min(next, events.isEmpty() ? Long.MAX_VALUE : events.peek().at());
            if (next > end) {
                now = end;
                return condition.getAsBoolean();
            }
            now = Math.max(now, next);
            if (!events.isEmpty() && events.peek().at() <= now) {
                events.poll().task().run();
            } else {
                engines.forEach(Engine::work);
            }
        }
        return true;
    }

    void pass(long time) {
        until(() -> false, time);
    }
}
