package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** Plays clients/vectors/*.transcript in simulated time on the state machines, as player.py does with a driver. */
class TranscriptsTest {
    private static final Set<String> VALUED = Set.of("PX", "EX", "BLOCK", "NOTIFY", "LIMIT", "HOLD", "MAXWAITERS", "GRACE");
    private static final Set<String> WAITING = Set.of("BLOCK", "NOTIFY", "MAXWAITERS");
    private static final Set<String> READS = Set.of("LOCK.INFO", "GET", "HGET", "ZMSCORE");
    private static final Map<String, String> FORMS = Map.of("LOCK.ACQUIRE", "mutex", "LOCK.REENTER", "reentrant", "LOCK.SHARE", "shared");
    private static final Value NO_SUBSCRIBER = Value.of('-', "NOSUBSCRIBER No client listens");
    private static final long PATIENCE = 12 * Words.SECOND;

    @TestFactory
    Stream<DynamicTest> transcriptsAreKeptInSimulatedTime() throws IOException {
        try (Stream<Path> files = Files.list(Path.of("../../vectors"))) {
            return files.filter(file -> file.toString().endsWith(".transcript")).sorted().toList().stream()
                .map(file -> DynamicTest.dynamicTest(file.getFileName().toString(), () -> new Play().run(Files.readAllLines(file))));
        }
    }

    /** A command, or the part of it before its options. */
    private record Parts(List<String> head, Map<String, String> options) {
        static Parts of(List<String> words) {
            if (!FORMS.containsKey(words.get(0)) && !words.get(0).equals("LOCK.EXTEND")) {
                return new Parts(words, Map.of());
            }
            Map<String, String> options = new TreeMap<>();
            for (int n = 3; n < words.size(); n++) {
                options.put(words.get(n), VALUED.contains(words.get(n)) ? words.get(++n) : "");
            }
            return new Parts(words.subList(0, Math.min(3, words.size())), options);
        }

        Parts without(Set<String> names) {
            Map<String, String> rest = new TreeMap<>(options);
            rest.keySet().removeAll(names);
            return new Parts(head, rest);
        }
    }

    private record Got(Simulation.Connection connection, List<String> words, Value[] slot, long at) { }

    private record Holder(String form, String token, long endsAt) { }

    private static final class Play extends Simulation {
        private final Map<String, String> vars = new HashMap<>();
        private final Map<String, Value> always = new HashMap<>();
        private final Map<String, Holder> held = new HashMap<>();
        private final Deque<Got> commands = new ArrayDeque<>();
        private final Deque<Got> got = new ArrayDeque<>();
        private final Deque<String> outcomes = new ArrayDeque<>();
        private final SimulatedDriver driver = new SimulatedDriver(engine(), outcomes::add);
        private Got waiter;
        private boolean hasModule = true;
        /** Connections are cut as soon as this lock is read. */
        private String unread = "";
        /** The next read of this lock, or CLIENT command with this word, is refused. */
        private String busy = "";
        private long steppedAt;

        // What the server does without a line of the transcript.

        @Override
        void command(Connection connection, List<String> words, Value[] slot) {
            String name = words.get(0);
            String key = words.size() > 1 ? words.get(1) : "";
            Value fixed = always.getOrDefault(name + "/" + key, always.get(name));
            if (READS.contains(name) && key.equals(unread)) {
                unread = "";
                cut();
            } else if ((READS.contains(name) || name.equals("CLIENT")) && key.equals(busy)) {
                busy = "";
                connection.reply(slot, Value.of('-', "BUSY Redis is busy running a script"));
            } else if (name.startsWith("LOCK.") && !hasModule) {
                connection.reply(slot, Value.of('-', "ERR unknown command '" + name + "', with args beginning with: "));
            } else if (name.equals("LOCK.INFO")) {
                Holder holder = held.get(key);
                connection.reply(slot, new Value('%', 0, "", List.of(
                    Value.of('$', "owner"), holder == null ? Value.NULL : Value.of('$', holder.token),
                    Value.of('$', "lease-ms"), Value.of(holder == null ? -2 : (holder.endsAt - now()) / Words.MS))));
            } else if (fixed != null) {
                note(words, fixed, now());
                connection.reply(slot, fixed);
            } else if (name.startsWith("LOCK.") || name.equals("EVAL")) {
                commands.add(new Got(connection, words, slot, now()));
            } else {
                connection.reply(slot, read(connection, name, key, words));
            }
        }

        private Value read(Connection connection, String name, String key, List<String> words) {
            Holder holder = held.get(key);
            boolean isMember = holder != null && words.size() > 2 && holder.token.equals(words.get(2));
            switch (name) {
                case "CLIENT" -> connection.tracks = true;
                case "SSUBSCRIBE" -> {
                    connection.channels.add(key);
                    return new Value('>', 0, "", List.of(Value.of('$', "ssubscribe"), Value.of('$', key), Value.of(1)));
                }
                case "GET" -> {
                    return holder != null && holder.form.equals("mutex") ? Value.of('$', holder.token) : Value.NULL;
                }
                case "HGET" -> {
                    return isMember ? Value.of('$', "1") : Value.NULL;
                }
                case "ZMSCORE" -> {
                    return new Value('*', 0, "", words.subList(2, words.size()).stream()
                        .map(one -> holder != null && one.equals(holder.token) ? Value.of(',', "1") : Value.NULL).toList());
                }
                default -> { }
            }
            return Value.of('+', "OK");
        }

        /** Notes what a command and its reply say of the holder. */
        private void note(List<String> words, Value value, long at) {
            Parts parts = Parts.of(words);
            String key = words.size() > 1 ? words.get(1) : "";
            long lease = Long.parseLong(parts.options.getOrDefault("PX", "1000000000")) * Words.MS;
            boolean isNumber = value.kind() == ':';
            if (FORMS.containsKey(words.get(0)) && isNumber && value.number() == 1) {
                long kept = parts.options.containsKey("SESSION") ? 1_000_000_000 * Words.MS : lease;
                held.put(key, new Holder(FORMS.get(words.get(0)), words.get(2), at + kept));
            } else if (words.get(0).equals("LOCK.EXTEND") && isNumber && held.containsKey(key)) {
                held.put(key, new Holder(held.get(key).form, held.get(key).token, at + lease));
            } else if (words.get(0).equals("LOCK.RELEASE") && isNumber) {
                changed(key, null);
            }
        }

        private void changed(String key, Holder holder) {
            if (held.remove(key) != null || holder != null) {
                if (holder != null) {
                    held.put(key, holder);
                }
                List<Value> message = List.of(Value.of('$', "invalidate"), new Value('*', 0, "", List.of(Value.of('$', key))));
                connections.stream().filter(one -> one.tracks).forEach(one -> one.push(new Value('>', 0, "", message)));
            }
        }

        private void cut() {
            new ArrayList<>(connections).forEach(Connection::cut);
        }

        // Lines of a transcript.

        private boolean isSame(String expected, String found) {
            if (expected.startsWith("$")) {
                return vars.computeIfAbsent(expected, name -> found).equals(found);
            } else if (expected.matches("\\d+\\.\\.\\d+")) {
                String[] limits = expected.split("\\.\\.");
                long number = found.matches("\\d+") ? Long.parseLong(found) : -1;
                return Long.parseLong(limits[0]) <= number && number <= Long.parseLong(limits[1]);
            }
            return expected.equals(found) || expected.equals("*")
                || expected.endsWith("~") && found.startsWith(expected.substring(0, expected.length() - 1));
        }

        private boolean areSame(List<String> expected, List<String> found) {
            boolean areSame = expected.size() == found.size();
            for (int n = 0; areSame && n < found.size(); n++) {
                areSame = isSame(expected.get(n), found.get(n));
            }
            return areSame;
        }

        private boolean matches(List<String> expected, List<String> found, Set<String> ignored, boolean isBare) {
            boolean isOpen = expected.get(expected.size() - 1).equals("...");
            Parts wanted = Parts.of(isOpen ? expected.subList(0, expected.size() - 1) : expected);
            wanted = isBare ? wanted.without(ignored) : wanted;
            Parts given = Parts.of(found);
            Set<String> unwanted = new java.util.HashSet<>(isOpen ? given.options.keySet() : ignored);
            unwanted.removeAll(wanted.options.keySet());
            given = given.without(unwanted);
            List<String> head = isOpen ? given.head.subList(0, Math.min(wanted.head.size(), given.head.size())) : given.head;
            return areSame(wanted.head, head) && wanted.options.keySet().equals(given.options.keySet())
                && areSame(List.copyOf(wanted.options.values()), List.copyOf(given.options.values()));
        }

        private Got next(List<String> expected, Set<String> ignored, boolean isBare) {
            check(until(() -> !commands.isEmpty(), PATIENCE), "no command comes");
            Got one = commands.poll();
            got.add(one);
            check(matches(expected, one.words, ignored, isBare), "the client sends " + one.words);
            return one;
        }

        private void answer(Value value) {
            Got one = got.poll();
            note(one.words, value, one.at);
            one.connection.reply(one.slot, value);
        }

        private void await(List<String> words) {
            for (int n = 0; n < 6; n++) {
                Got one = next(words, WAITING, true);
                String channel = Parts.of(one.words).options.get("NOTIFY");
                if (one.connection.channels.contains(channel)) {
                    waiter = one;
                    boolean isExact = words.stream().anyMatch(WAITING::contains);
                    check(matches(words, one.words, isExact ? Set.of() : WAITING, false), "the client waits by " + one.words);
                    answer(Value.of('+', "WAITING"));
                    return;
                }
                answer(channel == null ? Value.NULL : NO_SUBSCRIBER);
            }
            check(false, "the client does not wait");
        }

        private void see(List<String> words) {
            boolean isTimed = words.size() > 1 && words.get(words.size() - 2).equals("in");
            check(until(() -> !outcomes.isEmpty(), PATIENCE), "the driver prints nothing");
            String outcome = outcomes.poll();
            check(areSame(isTimed ? words.subList(0, words.size() - 2) : words, List.of(outcome.split(" "))), "the driver prints " + outcome);
            long took = (now() - steppedAt) / Words.MS;
            check(!isTimed || isSame(words.get(words.size() - 1), Long.toString(took)), "it comes after " + took + " ms");
        }

        private static Value value(List<String> words) throws IOException {
            String text = String.join(" ", words);
            return text.startsWith("$") ? Value.of('$', text.substring(1))
                : new Wire(new ByteArrayInputStream((text + "\r\n").getBytes(StandardCharsets.UTF_8))).read();
        }

        private void line(String action, List<String> words) throws IOException {
            switch (action) {
                case "do" -> {
                    steppedAt = now();
                    driver.step(words.stream().map(word -> vars.getOrDefault(word, word)).toList());
                }
                case "see" -> see(words);
                case "get" -> next(words, Set.of(), false);
                case "reply" -> answer(value(words));
                case "take" -> {
                    next(words, WAITING, false);
                    answer(Value.of(1));
                }
                case "wait" -> await(words);
                case "poll" -> {
                    while (Parts.of(next(words, WAITING, false).words).options.containsKey("NOTIFY")) {
                        answer(NO_SUBSCRIBER);
                    }
                    answer(Value.NULL);
                }
                case "say" -> say(words.get(0));
                case "gone" -> changed(words.get(0), null);
                case "holds" -> changed(words.get(0), new Holder("mutex", vars.getOrDefault(words.get(1), words.get(1)), now() + 30 * Words.SECOND));
                case "sleep" -> pass(Long.parseLong(words.get(0)) * Words.MS);
                case "none" -> {
                    pass(Long.parseLong(words.get(0)) * Words.MS);
                    check(commands.isEmpty() && outcomes.isEmpty(), "there is " + commands + outcomes);
                }
                case "always" -> {
                    always.put(words.get(0), value(words.subList(1, words.size())));
                    List<Got> early = List.copyOf(commands);
                    commands.clear();
                    early.forEach(one -> command(one.connection, one.words, one.slot));
                }
                case "busy" -> busy = words.get(0);
                case "module" -> hasModule = words.get(0).equals("yes");
                case "silent" -> isSilent = true;
                case "cut", "down" -> {
                    if (!words.isEmpty()) {
                        unread = words.get(0);
                        return;
                    }
                    isDown = action.equals("down");
                    cut();
                    got.clear();
                }
                case "up" -> isDown = false;
                default -> check(false, "no such line");
            }
        }

        private void say(String event) {
            Parts parts = Parts.of(waiter.words);
            if (event.equals("granted")) {
                note(waiter.words, Value.of(1), now());
            }
            String text = event + " 0 0 " + parts.head.get(2) + " " + parts.head.get(1);
            waiter.connection.push(new Value('>', 0, "",
                List.of(Value.of('$', "smessage"), Value.of('$', parts.options.get("NOTIFY")), Value.of('$', text))));
        }

        private int number;

        private void check(boolean isRight, String problem) {
            assertEquals("", isRight ? "" : problem, "line " + number);
        }

        void run(List<String> lines) throws IOException {
            for (String line : lines) {
                number++;
                if (!line.isEmpty() && !line.startsWith("#")) {
                    List<String> words = List.of(line.trim().split(" +"));
                    line(words.get(0), words.subList(1, words.size()));
                }
            }
            line("none", List.of("50"));
        }
    }
}
