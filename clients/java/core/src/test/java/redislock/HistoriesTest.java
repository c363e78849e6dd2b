package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** Random histories in simulated time: connections are cut, the server is away, other clients free locks. */
class HistoriesTest {
    /** A server with mutexes. */
    private static final class Server extends Simulation {
        private record Waiter(Connection connection, String token, String channel, long lease, long until) { }

        private static final class Mutex {
            String owner;
            long end;
            final List<Waiter> waiters = new ArrayList<>();
        }

        private final Map<String, Mutex> locks = new HashMap<>();

        Server() {
            tick();
        }

        private void tick() {
            Set.copyOf(locks.keySet()).forEach(this::lock);
            after(5 * Words.MS, this::tick);
        }

        /** Returns a lock after all that time has done to it. */
        private Mutex lock(String name) {
            Mutex lock = locks.computeIfAbsent(name, n -> new Mutex());
            lock.waiters.removeIf(waiter -> {
                boolean isOver = waiter.until <= now();
                if (isOver) {
                    tell(waiter, "timeout", name);
                }
                return isOver;
            });
            if (lock.owner != null && now() >= lock.end) {
                free(name, lock);
            }
            return lock;
        }

        private static void tell(Waiter waiter, String event, String name) {
            waiter.connection.push(new Value('>', 0, "", List.of(Value.of('+', "smessage"), Value.of('+', waiter.channel),
                Value.of('$', event + " 0 0 " + waiter.token + " " + name))));
        }

        /** Gives a lock to the next waiter. */
        private void free(String name, Mutex lock) {
            lock.owner = null;
            for (Connection one : connections) {
                if (one.tracked.remove(name)) {
                    one.push(new Value('>', 0, "", List.of(Value.of('+', "invalidate"), new Value('*', 0, "", List.of(Value.of('$', name))))));
                }
            }
            if (!lock.waiters.isEmpty()) {
                Waiter next = lock.waiters.remove(0);
                lock.owner = next.token;
                lock.end = now() + next.lease;
                tell(next, "granted", name);
            }
        }

        @Override
        void closed(Connection connection) {
            locks.values().forEach(lock -> lock.waiters.removeIf(waiter -> waiter.connection == connection));
        }

        @Override
        void command(Connection connection, List<String> words, Value[] slot) {
            connection.reply(slot, reply(connection, words));
        }

        private Value reply(Connection connection, List<String> words) {
            Map<String, String> options = new HashMap<>();
            for (int n = 3; n + 1 < words.size(); n += 2) {
                options.put(words.get(n), words.get(n + 1));
            }
            long lease = Long.parseLong(options.getOrDefault("PX", "0")) * Words.MS;
            Mutex lock = words.get(0).startsWith("LOCK.") || words.get(0).equals("GET") ? lock(words.get(1)) : null;
            boolean isOurs = lock != null && words.size() > 2 && words.get(2).equals(lock.owner);
            switch (words.get(0)) {
                case "SSUBSCRIBE" -> {
                    connection.channels.add(words.get(1));
                    return new Value('>', 0, "", List.of(Value.of('+', "ssubscribe"), Value.of('+', words.get(1)), Value.of(1)));
                }
                case "GET" -> {
                    connection.tracked.add(words.get(1));
                    return lock.owner == null ? Value.NULL : Value.of('$', lock.owner);
                }
                case "LOCK.ACQUIRE" -> {
                    if (lock.owner == null || isOurs) {
                        lock.owner = words.get(2);
                        lock.end = now() + lease;
                        return Value.of(1);
                    } else if (!options.containsKey("BLOCK")) {
                        return Value.NULL;
                    } else if (!connection.channels.contains(options.get("NOTIFY"))) {
                        return Value.of('-', "NOSUBSCRIBER No client listens");
                    }
                    lock.waiters.removeIf(waiter -> waiter.token.equals(words.get(2)));
                    lock.waiters.add(new Waiter(connection, words.get(2), options.get("NOTIFY"), lease,
                        now() + Long.parseLong(options.get("BLOCK")) * Words.MS));
                    return Value.of('+', "WAITING");
                }
                case "LOCK.EXTEND" -> {
                    lock.end = isOurs ? now() + lease : lock.end;
                    return isOurs ? Value.of(lease / Words.MS) : Value.of('-', "NOTOWNER Another client holds this lock");
                }
                case "LOCK.RELEASE" -> {
                    boolean hasWaited = lock.waiters.removeIf(waiter -> waiter.token.equals(words.get(2)));
                    if (isOurs) {
                        free(words.get(1), lock);
                        return Value.of(0);
                    }
                    return hasWaited ? Value.NULL : Value.of('-', "NOTOWNER Another client holds this lock");
                }
                default -> {
                    return Value.of('+', "OK");
                }
            }
        }
    }

    /** Acquires locks in random ways until the end. A lock that is held must be held at the server, or be reported as lost soon. */
    private static final class User {
        private final Server server;
        private final Engine engine;
        private final Random random;
        private final boolean isCalm;
        private final long end;
        private final Set<Claim> held = new HashSet<>();
        int acquired;

        User(Server server, Engine engine, Random random, boolean isCalm, long end) {
            this.server = server;
            this.engine = engine;
            this.random = random;
            this.isCalm = isCalm;
            this.end = end;
            server.after(random.nextInt(1000), this::use);
        }

        private void use() {
            if (server.now() >= end) {
                return;
            }
            LockSpec spec = new LockSpec(null, List.of("door-" + random.nextInt(2)));
            int how = random.nextInt(3);
            spec = how == 0 ? spec : spec.lease(Duration.ofSeconds(2));
            spec = how == 1 ? spec.renew() : spec;
            Claim claim = new Claim(engine, spec, spec.name(), Words.random(), held);
            int ending = random.nextInt(4);
            long patience = random.nextInt(2000) * Words.MS;
            long deadline = ending == 0 ? server.now() + patience : 0;
            Attempt attempt = new Attempt(List.of(claim), deadline, ending == 3, new HashSet<>());
            attempt.future.thenAccept(outcome -> {
                if (deadline != 0 && server.now() > deadline + Words.SILENCE + Words.LATE) {
                    fail("an attempt ends late: " + (server.now() - deadline) / Words.MS);
                }
                if (outcome.failure() != null) {
                    server.after(10 * Words.MS, this::use);
                } else {
                    acquired++;
                    keep(claim);
                }
            });
            attempt.start();
            engine.work();
            if (ending == 1) {
                server.after(patience, () -> {
                    if (!attempt.future.isDone()) {
                        attempt.cancel(Failure.CANCELLED);
                        engine.work();
                    }
                });
            }
        }

        private void keep(Claim claim) {
            boolean[] isLost = {false};
            claim.onLoss(() -> isLost[0] = true);
            server.after(random.nextInt(1500) * Words.MS, () -> {
                // In an outage the end of the lease is the limit.
                long limit = isCalm ? 10 * Words.MS : claim.spec.lease.toNanos() + Words.SECOND;
                boolean isHeld = claim.token.equals(server.lock(claim.name).owner);
                server.after(isHeld ? 0 : limit, () -> {
                    assertTrue(isHeld || isLost[0], "the loss is not reported");
                    claim.release(failure -> server.after(random.nextInt(20) * Words.MS, this::use));
                    engine.work();
                });
            });
        }
    }

    private static void fault(Server server, Random random, boolean isCalm, long end) {
        int kind = isCalm ? 2 : random.nextInt(4);
        if (kind == 2) {
            server.locks.entrySet().stream().filter(one -> one.getValue().owner != null).findFirst()
                .ifPresent(one -> server.free(one.getKey(), one.getValue()));
        } else {
            server.isDown = kind == 1;
            List.copyOf(server.connections).forEach(one -> {
                server.closed(one);
                one.cut();
            });
        }
        server.after(random.nextInt(3000) * Words.MS, () -> {
            server.isDown = false;
            if (server.now() < end) {
                fault(server, random, isCalm, end);
            }
        });
    }

    @Test
    void randomHistoriesLeaveNothing() {
        int acquired = 0;
        for (int seed = 0; seed < 100; seed++) {
            Server server = new Server();
            long end = server.now() + 60 * Words.SECOND;
            List<User> users = new ArrayList<>();
            List<Engine> engines = new ArrayList<>();
            for (int n = 0; n < 12; n++) {
                if (n % 4 == 0) {
                    engines.add(server.engine());
                }
                users.add(new User(server, engines.get(n / 4), new Random(100L * seed + n), seed % 2 == 0, end));
            }
            fault(server, new Random(seed), seed % 2 == 0, end);
            String story = "seed " + seed;
            try {
                // Whatever is in doubt is released until its lease has ended.
                server.pass(60 * Words.SECOND + 60 * Words.SECOND);
            } catch (RuntimeException | AssertionError e) {
                throw new AssertionError(story, e);
            }
            server.locks.forEach((name, lock) -> assertTrue(lock.owner == null && lock.waiters.isEmpty(), story + ": " + name + " is left"));
            engines.forEach(engine -> assertEquals(0, engine.topics.size() + engine.owners.size() + engine.watches.size(), story));
            acquired += users.stream().mapToInt(user -> user.acquired).sum();
        }
        assertTrue(acquired > 5_000, acquired + " locks were acquired");
    }

    @Test
    void renewedLockIsKeptForMinutes() {
        Server server = new Server();
        Engine engine = server.engine();
        LockSpec spec = new LockSpec(null, List.of("door"));
        Claim claim = new Claim(engine, spec, "door", "t", new HashSet<>());
        Attempt attempt = new Attempt(List.of(claim), 0, false, new HashSet<>());
        attempt.start();
        server.pass(600 * Words.SECOND);
        assertTrue(attempt.future.isDone() && claim.isHeld());
        assertTrue(server.lock("door").end - server.now() > 19 * Words.SECOND);
        claim.release(failure -> assertEquals(null, failure));
        server.pass(Words.SECOND);
        assertEquals(null, server.lock("door").owner);
    }
}
