package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import org.junit.jupiter.api.Test;

/** What a Watch and an Observer do at certain moments. */
class WatchTest {
    /** Grants all, and deletes the mutex between two reads of one check. */
    private static final class Server extends Simulation {
        private String token;
        private boolean deletes;

        @Override
        void command(Connection connection, List<String> words, Value[] slot) {
            switch (words.get(0)) {
                case "LOCK.ACQUIRE" -> {
                    token = words.get(2);
                    connection.reply(slot, Value.of(1));
                }
                case "LOCK.SHARE" -> connection.reply(slot, Value.of(1));
                case "GET" -> connection.reply(slot, token == null ? Value.NULL : Value.of('$', token));
                case "ZMSCORE" -> {
                    if (deletes) {
                        deletes = false;
                        token = null;
                        invalidate();
                    }
                    connection.reply(slot, new Value('*', 0, "", List.of(Value.of(',', "1"))));
                }
                default -> connection.reply(slot, Value.of('+', "OK"));
            }
        }

        void invalidate() {
            Value keys = new Value('*', 0, "", List.of(Value.of('$', "door")));
            connections.get(0).push(new Value('>', 0, "", List.of(Value.of('$', "invalidate"), keys)));
        }
    }

    @Test
    void lockThatChangesDuringReadIsLost() {
        Server server = new Server();
        Engine engine = server.engine();
        LockSpec spec = new LockSpec(null, List.of("door"));
        List<Claim> claims = List.of(spec, spec.shared()).stream().map(one -> {
            Claim claim = new Claim(engine, one, "door", Words.random(), new HashSet<>());
            new Attempt(List.of(claim), 0, false, new HashSet<>()).start();
            server.pass(Words.SECOND);
            claim.onLoss(() -> { });
            return claim;
        }).toList();
        server.pass(Words.SECOND);
        server.deletes = true;
        server.invalidate();
        server.pass(Words.SECOND);
        assertEquals(List.of(Claim.State.LOST, Claim.State.HELD), claims.stream().map(claim -> claim.state).toList());
    }

    /** A cluster in which another node has the lock. Nodes report changes to connections that have asked for it. */
    private static final class Cluster extends Simulation {
        private String holder = "one:1";

        @Override
        void command(Connection connection, List<String> words, Value[] slot) {
            switch (words.get(0)) {
                case "HELLO" -> connection.reply(slot, map("mode", "cluster"));
                case "LOCK.INFO" -> connection.reply(slot, connection.link.address.isEmpty()
                    ? Value.of('-', "MOVED " + Words.slot("door") + " other:7001") : map("owner", holder));
                default -> {
                    connection.tracks = true;
                    connection.reply(slot, Value.of('+', "OK"));
                }
            }
        }

        private static Value map(String name, String text) {
            return new Value('%', 0, "", List.of(Value.of('$', name), Value.of('$', text), Value.of('$', "lease-ms"), Value.of(30_000)));
        }

        void change() {
            holder = "two:2";
            Value keys = new Value('*', 0, "", List.of(Value.of('$', "door")));
            connections.stream().filter(one -> one.tracks && !one.link.address.isEmpty())
                .forEach(one -> one.push(new Value('>', 0, "", List.of(Value.of('$', "invalidate"), keys))));
        }
    }

    @Test
    void observerOfMovedSlotHearsOfChange() {
        Cluster cluster = new Cluster();
        List<String> labels = new ArrayList<>();
        new Observer(cluster.engine(), "door", label -> labels.add(label.orElse(""))).start();
        cluster.pass(Words.SECOND);
        cluster.change();
        cluster.pass(Words.SECOND);
        assertEquals(List.of("one", "two"), labels);
    }

    @Test
    void observerEndsWithItsEngine() {
        Server server = new Server();
        Engine engine = server.engine();
        new Observer(engine, "door", label -> { }).start();
        server.pass(Words.SECOND);
        engine.close();
        server.pass(2 * Words.SILENCE);
        assertEquals(List.of(), List.copyOf(engine.timers));
    }
}
