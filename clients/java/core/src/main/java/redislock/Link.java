package redislock;

import java.io.IOException;
import java.net.ProtocolException;
import java.net.SocketTimeoutException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.function.Consumer;

/** One connection to one server: commands and replies in one order, and messages between them. */
final class Link {
    /** After a stall of this process there is one tick, and replies are read before the next. */
    private static final long TICK = Words.SECOND / 2;
    /** After so many ticks without a reply a server is lost; a connection that no lock uses is closed after a minute. */
    private static final int SILENCE_TICKS = (int) (Words.SILENCE / TICK) - 1, IDLE_TICKS = 120;
    static final IOException CLOSED = new IOException("the connection is closed");

    final String address;
    final long createdAt;
    private final Engine engine;
    private final Engine.Port port;
    private final String id = Words.random();
    /** Where the replies go, in the order of the commands. */
    private final Deque<Consumer<Reply>> calls = new ArrayDeque<>();
    /** What is sent when the connection is open. */
    private final List<Runnable> early = new ArrayList<>();
    private boolean isOpen;
    private Throwable closed;
    private int quiet;
    private Engine.Timer tick;
    private String channel;
    private boolean isSubscribed;
    private Reply subscribed;
    private boolean isTracked;

    Link(Engine engine, String address, long delay) {
        this.engine = engine;
        this.address = address;
        createdAt = engine.host.now();
        port = engine.host.open(this, address, delay);
        tick = engine.after(TICK, this::tick);
    }

    /** The connection is there: it chooses the protocol, the user and the database. */
    void opened(Server.Credentials user) {
        if (closed != null) {
            port.close();
            return;
        }
        List<String> hello = new ArrayList<>(List.of("HELLO", "3", "SETNAME", "redis-lock-client"));
        hello.addAll(user == null ? List.of() : user.words());
        write(hello, r -> {
            if (!r.isFailed() && r.value().field("mode").text().equals("cluster")) {
                engine.isCluster = true;
            }
            if (r.isFailed() || engine.database == 0) {
                begin(r);
            } else {
                write(List.of("SELECT", Integer.toString(engine.database)), this::begin);
            }
        });
    }

    private void begin(Reply last) {
        if (last.isFailed()) {
            close(last.isDisconnected() ? last.lost() : new Reply.ServerException(last.errorText()));
        } else {
            isOpen = true;
            early.forEach(Runnable::run);
            early.clear();
        }
    }

    boolean isOpen() {
        return isOpen;
    }

    boolean isOpening() {
        return !isOpen && closed == null;
    }

    /** Runs a task when this is open or closed. */
    void whenOpen(Runnable task) {
        early.add(task);
    }

    /** Returns whether nothing is to be read: no reply, and no message. */
    boolean isQuiet() {
        return calls.isEmpty() && engine.isIdle();
    }

    void send(List<String> words, Consumer<Reply> then) {
        if (closed != null) {
            engine.next(() -> then.accept(Reply.none(closed)));
        } else if (isOpen) {
            write(words, then);
        } else {
            whenOpen(() -> send(words, then));
        }
    }

    private void write(List<String> words, Consumer<Reply> then) {
        if (calls.isEmpty()) {
            quiet = 0;
        }
        calls.add(then);
        port.send(words);
    }

    void received(Value value) {
        quiet = 0;
        if (value.kind() == '>' && !value.items().isEmpty() && !value.items().get(0).text().equals("ssubscribe")) {
            message(value.items());
            return;
        }
        // The reply to SSUBSCRIBE is a message.
        Consumer<Reply> call = calls.poll();
        if (call == null) {
            close(new ProtocolException("a reply to no command"));
            return;
        }
        engine.heard();
        call.accept(new Reply(value, null, true, this, false));
    }

    private void message(List<Value> items) {
        Value last = items.get(items.size() - 1);
        switch (items.get(0).text()) {
            case "smessage" -> {
                // <event> <lease end> <db> <token> <key>
                String[] words = last.text().split(" ", 5);
                if (words.length == 5) {
                    engine.hear(words[3], words[0]);
                }
            }
            case "invalidate" -> {
                if (last.isNull()) {
                    engine.hearAll("changed");
                }
                last.items().forEach(key -> engine.hear(key.text(), "changed"));
            }
            case "sunsubscribe" -> {
                forgetChannel();
                engine.hearAll("lost");
            }
            default -> { }
        }
    }

    /**
     * Returns the channel for messages that end waits, null if there can be none for a key. The subscription is sent before what the caller
     * sends, so its reply is not awaited.
     */
    String subscribe(String key) {
        if (!isSubscribed) {
            // In a cluster it is in the slot of the key.
            channel = Words.channel(id, key, engine.isCluster);
            isSubscribed = channel != null;
            if (isSubscribed) {
                send(List.of("SSUBSCRIBE", channel), r -> subscribed = r);
            }
        }
        return channel;
    }

    /** Forgets the channel, which does not work: in a cluster its slot may have moved. A user without the right to it polls. */
    void forgetChannel() {
        if (subscribed != null && subscribed.code().equals("NOPERM")) {
            channel = null;
            engine.warn("waits for locks poll, because the user has no right to the channels redis-lock:*");
        } else {
            isSubscribed = false;
        }
        subscribed = null;
    }

    /** Makes the server report the changes of what is read from now on. A user without the right to it sees a loss later. */
    void track() {
        if (!isTracked) {
            isTracked = true;
            // NOLOOP is not used: with it, a write of this connection ends the tracking of the key without a message.
            send(List.of("CLIENT", "TRACKING", "ON"), r -> isTracked = !r.isPassing());
        }
    }

    /** Returns false if the server was too busy for {@link #track}, which is to be tried again. */
    boolean isTracked() {
        return isTracked;
    }

    private void tick() {
        quiet++;
        boolean isAwaited = !calls.isEmpty() || !isOpen;
        if (isAwaited && quiet > SILENCE_TICKS) {
            close(new SocketTimeoutException("the server does not reply"));
        } else if (!isAwaited && quiet > IDLE_TICKS && engine.isIdle()) {
            close(CLOSED);
        } else {
            tick = engine.after(TICK, this::tick);
        }
    }

    /** Ends all calls. */
    void close(Throwable cause) {
        if (closed != null) {
            return;
        }
        closed = cause;
        boolean wasOpen = isOpen;
        isOpen = false;
        engine.cancel(tick);
        port.close();
        engine.lost(this, wasOpen, cause);
        for (Consumer<Reply> call; (call = calls.poll()) != null;) {
            call.accept(new Reply(null, cause, wasOpen, this, false));
        }
        early.forEach(Runnable::run);
    }
}
