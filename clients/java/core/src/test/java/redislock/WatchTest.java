package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;

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
