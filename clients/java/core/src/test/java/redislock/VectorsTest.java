package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayInputStream;
import java.io.EOFException;
import java.io.File;
import java.io.FilterInputStream;
import java.io.IOException;
import java.net.ProtocolException;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

/** clients/vectors/words.json, and the transcripts over TCP. */
class VectorsTest {
    private static final File VECTORS = new File("../../vectors");
    private static final JsonNode ALL = read();

    private static JsonNode read() {
        try {
            return new ObjectMapper().readTree(new File(VECTORS, "words.json"));
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    private static LockSpec spec(JsonNode lock) {
        LockSpec spec = new LockSpec(null, List.of(lock.path("name").asText("door")));
        if (lock.has("lease_ms")) {
            spec = spec.lease(Duration.ofNanos((long) (lock.get("lease_ms").asDouble() * 1000)).multipliedBy(1000));
        }
        if (lock.has("wait_ms")) {
            spec = spec.waitAtMost(Duration.ofMillis(lock.get("wait_ms").asLong()));
        }
        if (lock.has("permits")) {
            spec = spec.permits(lock.get("permits").asInt());
        }
        if (lock.has("max_waiters")) {
            spec = spec.maxWaiters(lock.get("max_waiters").asInt());
        }
        if (lock.has("label")) {
            spec = spec.label(lock.get("label").asText());
        }
        spec = lock.path("kind").asText().equals("reentrant") ? spec.reentrant("o") : spec;
        spec = lock.path("kind").asText().equals("shared") ? spec.shared() : spec;
        spec = lock.path("session").asBoolean() ? spec.session() : spec;
        spec = lock.path("renew").asBoolean() ? spec.renew() : spec;
        spec.checkAll();
        return spec;
    }

    @Test
    void commandsAreThoseOfTheFamily() {
        for (JsonNode one : ALL.get("commands")) {
            Claim claim = new Claim(new Engine(new Simulation(), 0), spec(one.get("lock")), "door", "t:1", new HashSet<>());
            Engine.Command command = switch (one.get("send").asText()) {
                case "acquire" -> claim.takeCommand(true);
                case "wait" -> claim.waitCommand(one.get("wait_ms").asLong() * Words.MS, one.get("channel").asText());
                case "release" -> claim.releaseCommand();
                case "extend" -> claim.extendCommand(one.get("lease_ms").asLong() * Words.MS, true);
                default -> claim.fenceCommand("{door}:fence");
            };
            List<String> words = new ArrayList<>();
            one.get("words").forEach(word -> words.add(word.asText()));
            assertEquals(words, command.words());
        }
    }

    @Test
    void namesAreThoseOfTheFamily() {
        for (JsonNode one : ALL.get("channels")) {
            assertEquals(one.get("channel").asText(null), Words.channel("ID", one.get("name").asText(), one.get("cluster").asBoolean()));
        }
        for (JsonNode one : ALL.get("counters")) {
            assertEquals(one.get("counter").asText(null), Words.counter(one.get("name").asText(), one.get("cluster").asBoolean()));
        }
        for (JsonNode one : ALL.get("labels")) {
            assertEquals(one.get("label").asText(), Words.label(one.get("token").asText()));
        }
    }

    @Test
    void argumentsAreCheckedAsInTheFamily() {
        for (JsonNode one : ALL.get("arguments")) {
            if (one.get("valid").asBoolean()) {
                spec(one.get("lock"));
            } else if (one.get("lock").path("permits").asLong() <= Integer.MAX_VALUE) {
                // More permits are no int.
                assertThrows(IllegalArgumentException.class, () -> spec(one.get("lock")), one.toString());
            }
        }
    }

    @Test
    void errorsAreClassifiedAsInTheFamily() {
        for (JsonNode one : ALL.get("errors")) {
            Reply reply = Reply.of(Value.of('-', one.get("text").asText()));
            String found = reply.isNotHeld() ? "lost" : reply.code().equals("UNKNOWN") ? "no module"
                : reply.code().equals("NOSUBSCRIBER") ? "no channel" : reply.isPassing() ? "passing"
                : Failure.of(reply).kind() == Failure.Kind.FULL ? "full" : "server";
            assertEquals(one.get("class").asText(), found, one.toString());
        }
    }

    @Test
    void messagesReachWhatWaitsForThem() {
        for (JsonNode one : ALL.get("messages")) {
            Engine engine = new Engine(new Simulation(), 0);
            List<String> events = new ArrayList<>();
            engine.listen(one.get("token").asText(), events::add);
            Link link = engine.linkOf("door");
            link.received(new Value('>', 0, "", List.of(Value.of('+', "smessage"), Value.of('+', "c"), Value.of('$', one.get("text").asText()))));
            assertEquals(List.of(one.get("event").asText()), events);
        }
    }

    private static JsonNode plain(Value value) {
        JsonNodeFactory make = JsonNodeFactory.instance;
        switch (value.kind()) {
            case '_' -> {
                return make.nullNode();
            }
            case ':' -> {
                return make.numberNode(value.number());
            }
            case '#' -> {
                return make.booleanNode(value.number() == 1);
            }
            case ',' -> {
                return make.numberNode(Double.parseDouble(value.text()));
            }
            case '(' -> {
                return make.numberNode(Long.parseLong(value.text()));
            }
            case '*', '~', '>' -> {
                ArrayNode list = make.arrayNode();
                value.items().forEach(item -> list.add(plain(item)));
                return list;
            }
            case '%' -> {
                ObjectNode map = make.objectNode();
                for (int n = 0; n < value.items().size(); n += 2) {
                    map.set(value.items().get(n).text(), plain(value.items().get(n + 1)));
                }
                return map;
            }
            default -> {
                return make.textNode(value.text());
            }
        }
    }

    /** Reads a value whose bytes come one by one, with a time-out before each. */
    private static Value readInPieces(String bytes) throws IOException {
        boolean[] isLate = {false};
        Wire in = new Wire(new FilterInputStream(new ByteArrayInputStream(bytes.getBytes(StandardCharsets.UTF_8))) {
            @Override
            public int read(byte[] to, int at, int length) throws IOException {
                isLate[0] = !isLate[0];
                if (isLate[0]) {
                    throw new SocketTimeoutException();
                }
                return super.read(to, at, 1);
            }
        });
        for (;;) {
            try {
                return in.read();
            } catch (SocketTimeoutException e) {
                assertTrue(isLate[0]);
            }
        }
    }

    @Test
    void valuesAreReadAsInTheFamily() throws IOException {
        for (JsonNode one : ALL.get("values")) {
            String bytes = one.get("bytes").asText();
            if (one.has("invalid")) {
                assertThrows(ProtocolException.class, () -> readInPieces(bytes), one.toString());
            } else if (one.has("incomplete")) {
                assertThrows(EOFException.class, () -> readInPieces(bytes), one.toString());
            } else if (one.has("error")) {
                assertEquals(Value.of('-', one.get("error").asText()), readInPieces(bytes));
            } else {
                Value found = readInPieces(bytes);
                assertEquals(one.has("push"), found.kind() == '>');
                assertEquals(one.get(one.has("push") ? "push" : "value").toString(), plain(found).toString());
            }
        }
    }

    @Test
    void numbersAreThoseOfTheFamily() {
        Map<String, Long> ours = new TreeMap<>(Map.of("default_lease_ms", Words.DEFAULT_LEASE.toMillis(), "min_lease_ms", Words.MIN_LEASE.toMillis(),
            "max_lease_ms", Words.MAX_LEASE.toMillis(), "min_session_lease_ms", Words.MIN_SESSION_LEASE.toMillis(),
            "max_grace_ms", Words.MAX_GRACE / Words.MS, "max_block_ms", Words.MAX_BLOCK / Words.MS, "silence_ms", Words.SILENCE / Words.MS,
            "outage_ms", Words.MAX_OUTAGE / Words.MS, "scripts_ms", Words.USE_SCRIPTS / Words.MS, "max_poll_ms", Words.LAST_PAUSE / Words.MS));
        ours.putAll(Map.of("release_again_ms", Words.RELEASE_AGAIN / Words.MS, "max_permits", (long) Integer.MAX_VALUE,
            "shares_under_way", (long) Words.MAX_TOGETHER, "late_part", (long) Words.LATE_PART, "renewals", (long) Words.RENEWALS));
        Map<String, Long> theirs = new TreeMap<>();
        ALL.get("numbers").properties().forEach(field -> theirs.put(field.getKey(), field.getValue().asLong()));
        assertEquals(theirs, ours);
    }

    @Test
    void transcriptsAreKeptOverTcp() throws Exception {
        List<String> words = List.of("python3", VECTORS + "/player.py", "--", System.getProperty("java.home") + "/bin/java",
            "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx64m", "-cp", "target/classes:target/test-classes", "redislock.Driver");
        Process player = new ProcessBuilder(words).redirectErrorStream(true).start();
        String output = new String(player.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, player.waitFor(), output);
        System.out.println(output);
    }
}
