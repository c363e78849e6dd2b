package redislock;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * What all Locks of this process on one server, or in one cluster, share. It is a state machine without threads, clock and input: its host has
 * them, and calls it one at a time.
 */
final class Engine {
    private static final System.Logger LOG = System.getLogger("redislock");
    private static final int MAX_REDIRECTIONS = 5;

    /** What has the threads, the clock and the connections. */
    interface Host {
        /** Returns the time in nanoseconds, which is far above 0. */
        long now();

        /** Opens a connection after a delay, and calls {@link Link#opened} then. An empty address is that of the server itself. */
        Port open(Link link, String address, long delay);

        /** Runs what a caller has given, outside of the engine. */
        void outside(Runnable task);
    }

    /** What the host has for a connection. */
    interface Port {
        void send(List<String> words);

        void close();
    }

    /** What runs at a time. */
    record Timer(long at, long number, Runnable task) implements Comparable<Timer> {
        @Override
        public int compareTo(Timer other) {
            return at != other.at ? Long.compare(at, other.at) : Long.compare(number, other.number);
        }
    }

    /**
     * What is sent for a lock.
     *
     * @param script stands in for it without the module; it may be null
     * @param isOnce leaves it to the caller to send it again
     */
    record Command(List<String> words, String script, boolean isOnce) {
        String key() {
            return words.get(1);
        }

        boolean isLock() {
            return words.get(0).startsWith("LOCK.");
        }
    }

    final Host host;
    final int database;
    final Queues queues = new Queues();
    /** The holds of re-entrant locks by name and owner. */
    final Map<String, Claim> owners = new HashMap<>();
    final Map<String, Watch> watches = new HashMap<>();
    /** Other nodes have other keys. */
    boolean isCluster;
    boolean isClosed;
    private long heardAt;
    private long scriptsUntil;
    private long lostAt;
    private long failedAt;
    private boolean hasWarned;
    private long timerCount;
    final TreeSet<Timer> timers = new TreeSet<>();
    private final Deque<Runnable> tasks = new ArrayDeque<>();
    /** The connections by address; the one that the client names is "". Redirections have named the addresses of slots. */
    private final Map<String, Link> links = new HashMap<>();
    private final Map<Integer, String> slots = new HashMap<>();
    /** Where events go, by the token that waits or the key that changes. */
    final Map<String, Set<Consumer<String>>> topics = new HashMap<>();
    /** How many releases of a lock are under way, and what waits for them. */
    private final Map<String, Integer> unsent = new HashMap<>();
    private final List<Runnable> settling = new ArrayList<>();

    Engine(Host host, int database) {
        this.host = host;
        this.database = database;
    }

    // Time.

    Timer after(long delay, Runnable task) {
        return at(host.now() + delay, task);
    }

    Timer at(long time, Runnable task) {
        Timer timer = new Timer(time, timerCount++, task);
        timers.add(timer);
        return timer;
    }

    void cancel(Timer timer) {
        if (timer != null) {
            timers.remove(timer);
        }
    }

    /** Runs a task after the present ones. */
    void next(Runnable task) {
        tasks.add(task);
    }

    /** Runs what is due, and returns when the host must call it again. */
    long work() {
        for (long now = host.now();;) {
            Runnable task = tasks.poll();
            if (task == null && !timers.isEmpty() && timers.first().at <= now) {
                task = timers.pollFirst().task;
            }
            if (task == null) {
                return timers.isEmpty() ? Long.MAX_VALUE : timers.first().at;
            }
            guard(task);
        }
    }

    /** Runs a task that must not end what runs after it. */
    void guard(Runnable task) {
        try {
            task.run();
        } catch (RuntimeException e) {
            LOG.log(System.Logger.Level.ERROR, "a task of the locks has failed", e);
        }
    }

    // The server.

    void heard() {
        heardAt = host.now();
    }

    boolean hasModule() {
        return host.now() >= scriptsUntil;
    }

    /** Returns whether a wait goes on in an outage: the server has replied before, and not too long ago. */
    boolean mayComeBack() {
        return heardAt > 0 && host.now() - heardAt <= Words.MAX_OUTAGE;
    }

    void log(System.Logger.Level level, String text) {
        LOG.log(level, text);
    }

    /** Warns one time. */
    void warn(String text) {
        if (!hasWarned) {
            log(System.Logger.Level.WARNING, text);
        }
        hasWarned = true;
    }

    boolean isIdle() {
        return topics.isEmpty();
    }

    /** Returns the connection to the server of a key. */
    Link linkOf(String key) {
        return linkTo(isCluster ? slots.getOrDefault(Words.slot(key), "") : "");
    }

    private Link linkTo(String address) {
        Link link = links.get(address);
        if (link == null) {
            link = new Link(this, address, Math.max(0, failedAt + Words.RETRY - host.now()));
            if (isClosed) {
                link.close(Link.CLOSED);
            } else {
                links.put(address, link);
            }
        }
        return link;
    }

    /** Notes that a connection is lost: another node may have its slots. */
    void lost(Link link, boolean wasOpen, Throwable cause) {
        links.remove(link.address, link);
        slots.values().removeIf(link.address::equals);
        lostAt = host.now();
        if (!wasOpen && cause != Link.CLOSED) {
            failedAt = lostAt;
        }
        // If none was open, two waits without a server would wake each other.
        if (wasOpen && cause != Link.CLOSED) {
            hearAll("lost");
        }
    }

    /** Sends a command that changes nothing. */
    void read(List<String> words, Consumer<Reply> then) {
        ask(new Command(words, null, true), then);
    }

    /**
     * Sends a command, or its script, to the server that has its key, which redirections name, and again if the server could not be reached: a
     * command counts one time.
     */
    void ask(Command command, Consumer<Reply> then) {
        ask(command.key(), () -> command, then);
    }

    /** Sends what a supplier makes, each time: null if the lock is released. */
    void ask(String key, Supplier<Command> commands, Consumer<Reply> then) {
        new Ask(key, commands, then).send(linkOf(key), false);
    }

    private final class Ask {
        final String key;
        final Supplier<Command> commands;
        final Consumer<Reply> then;
        final long startedAt = host.now();
        long until;
        long pause = Words.FIRST_PAUSE;
        int redirections;
        boolean isRepeated;
        Command command;

        Ask(String key, Supplier<Command> commands, Consumer<Reply> then) {
            this.key = key;
            this.commands = commands;
            this.then = then;
        }

        void send(Link link, boolean isAsking) {
            if (link.isOpening()) {
                // What is sent is decided when it can be sent.
                link.whenOpen(() -> send(link, isAsking));
                return;
            }
            command = commands.get();
            if (command == null) {
                next(() -> then.accept(Reply.RELEASED));
                return;
            }
            boolean isScript = command.isLock() && !hasModule();
            List<String> words = isScript ? Scripts.call(command.script, command.words) : command.words;
            if (words == null) {
                next(() -> then.accept(Reply.needsModule(command.words)));
                return;
            }
            if (isAsking) {
                link.send(List.of("ASKING"), r -> { });
            }
            link.send(words, r -> replied(r, link, isScript));
        }

        private void replied(Reply r, Link link, boolean isScript) {
            switch (r.code()) {
                case "UNKNOWN" -> {
                    scriptsUntil = host.now() + Words.USE_SCRIPTS;
                    if (command.isLock() && !isScript) {
                        send(link, false);
                        return;
                    }
                }
                case "READONLY" -> {
                    if (host.now() - link.createdAt > Words.SECOND) {
                        // It was a master before: its address may lead elsewhere by now.
                        link.close(new Reply.ServerException(r.errorText()));
                    }
                }
                case "MOVED", "ASK" -> {
                    if (isCluster && redirections++ < MAX_REDIRECTIONS) {
                        redirect(r.errorText().split(" "), link);
                        return;
                    }
                }
                default -> { }
            }
            long now = host.now();
            if (until == 0 && r.isFailed()) {
                // Not after a silence: another one would be too long.
                until = Math.min(now + Words.OWN_RETRIES, startedAt + Words.SILENCE - Words.SECOND);
            }
            if (command.isOnce || !r.isPassing() || !mayComeBack() || now + pause > until || isClosed) {
                then.accept(isRepeated ? new Reply(r.value(), r.lost(), r.wasSent(), r.link(), true) : r);
                return;
            }
            isRepeated = isRepeated || r.isDoubtful();
            after(pause, () -> send(linkOf(key), false));
            pause = Math.min(2 * pause, Words.LAST_PAUSE);
        }

        /** @param words MOVED slot address, or ASK; without a host it is the same one on another port */
        private void redirect(String[] words, Link from) {
            int end = from.address.lastIndexOf(':');
            String address = words[2].startsWith(":") ? from.address.substring(0, Math.max(0, end)) + words[2] : words[2];
            if (words[0].equals("MOVED")) {
                slots.put(Integer.valueOf(words[1]), address);
            }
            send(linkTo(address), words[0].equals("ASK"));
        }
    }

    /** Returns whether the server has replied lately, since no connection was lost. */
    boolean isHeard() {
        return host.now() - heardAt < Words.PROBE_AFTER && heardAt > lostAt;
    }

    /** Returns what takes a reply that shows whether the server is there, and calls back with null, or with an outage if none comes soon. */
    Consumer<Reply> orLate(Consumer<Failure> then) {
        Timer[] timer = {null};
        timer[0] = after(Words.LATE, () -> {
            timer[0] = null;
            then.accept(Failure.connection("the server does not reply"));
        });
        return r -> {
            if (timer[0] != null) {
                cancel(timer[0]);
                timer[0] = null;
                then.accept(r.isPassing() ? Failure.of(r) : null);
            }
        };
    }

    // Events.

    void listen(String topic, Consumer<String> listener) {
        topics.computeIfAbsent(topic, t -> new LinkedHashSet<>()).add(listener);
    }

    void unlisten(String topic, Consumer<String> listener) {
        topics.computeIfPresent(topic, (t, all) -> all.remove(listener) && all.isEmpty() ? null : all);
    }

    void hear(String topic, String event) {
        List.copyOf(topics.getOrDefault(topic, Set.of())).forEach(listener -> listener.accept(event));
    }

    /** Makes all waits ask again, and all watched locks be checked: messages may be lost. */
    void hearAll(String event) {
        List.copyOf(topics.keySet()).forEach(topic -> hear(topic, event));
    }

    // Releases.

    void noteUnsent(String name, int count) {
        unsent.merge(name, count, (a, b) -> a + b == 0 ? null : a + b);
        checkSettled();
    }

    /** Waits for the releases of a lock that are under way, or without a name for all, but not longer than a limit. */
    void settle(String name, long limit, Runnable then) {
        if (limit <= 0 || (name == null ? unsent.isEmpty() : !unsent.containsKey(name))) {
            then.run();
            return;
        }
        Timer timer = after(limit, this::checkSettled);
        settling.add(() -> {
            cancel(timer);
            settle(name, timer.at - host.now(), then);
        });
    }

    private void checkSettled() {
        List<Runnable> all = List.copyOf(settling);
        settling.clear();
        all.forEach(Runnable::run);
    }

    /** Closes the connections. */
    void close() {
        isClosed = true;
        List.copyOf(links.values()).forEach(link -> link.close(Link.CLOSED));
    }
}
