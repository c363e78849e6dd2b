package redislock;

import java.util.List;
import java.util.function.Consumer;

/** A request for a lock with a token of its own, and what the server may know of it. */
class Request {
    final Engine engine;
    final LockSpec spec;
    final String name;
    final String token;
    long lease;
    /** The server may keep a queue entry or the lock for it. */
    boolean isKnown;
    /** A copy of the request was lost with its connection, and may be executed late. */
    boolean isDoubtful;
    /** Its RELEASE is the last command. */
    private boolean isWithdrawn;
    /** Before the last request, from where the lease counts, and where it was sent. */
    long sentAt;
    Link link;
    /** The grace period that the server has for a session, or the shorter one of two. */
    long graceSent = Words.MAX_GRACE;

    Request(Engine engine, LockSpec spec, String name, String token) {
        this.engine = engine;
        this.spec = spec;
        this.name = name;
        this.token = token;
        lease = spec.lease.toNanos();
    }

    /** Names the local queue. Each owner of a re-entrant lock has its own. */
    String queueKey() {
        return spec.kind == LockSpec.Kind.REENTRANT ? name + "\0" + spec.owner : name;
    }

    Engine.Command takeCommand(boolean isOnce) {
        return command(Words.request(spec, name, token, lease), Scripts.TAKE, isOnce);
    }

    Engine.Command waitCommand(long wait, String channel) {
        return command(Words.waiting(spec, Words.request(spec, name, token, lease), wait, channel), null, true);
    }

    Engine.Command releaseCommand() {
        return command(List.of("LOCK.RELEASE", name, token), Scripts.RELEASE, false);
    }

    Engine.Command extendCommand(long length, boolean isOnce) {
        return command(List.of("LOCK.EXTEND", name, token, "PX", Words.millis(length)), Scripts.EXTEND, isOnce);
    }

    Engine.Command fenceCommand(String counter) {
        return new Engine.Command(List.of("LOCK.FENCE", name, token, counter), null, false);
    }

    /** Sessions and shares need the module. */
    private Engine.Command command(List<String> words, String script, boolean isOnce) {
        return new Engine.Command(words, spec.session || spec.kind == LockSpec.Kind.SHARED ? null : script, isOnce);
    }

    /** Sends a request for the lock, and notes what the server may know of it. */
    void request(Engine.Command command, Consumer<Reply> then) {
        boolean wasKnown = isKnown;
        long grace = Words.grace(lease);
        graceSent = Math.min(graceSent, grace);
        isKnown = true;
        sentAt = engine.host.now();
        engine.ask(name, () -> isWithdrawn ? null : command, r -> {
            isDoubtful = isDoubtful || r.isDoubtful();
            isKnown = wasKnown || isDoubtful || !r.isFailed() && !r.isNull();
            link = r.link();
            graceSent = r.isGrant() ? grace : graceSent;
            then.accept(r);
        });
    }

    /**
     * Releases the lock, or makes the server forget a request: at once, and in the background until the server replies or the lease has
     * certainly ended.
     *
     * @param answered takes the first reply, or nil if the server knows nothing
     */
    void withdraw(Consumer<Reply> answered) {
        isWithdrawn = true;
        if (isKnown) {
            engine.noteUnsent(name, 1);
            withdraw(engine.host.now() + lease + Words.MAX_BLOCK, answered);
        } else {
            answered.accept(Reply.of(Value.NULL));
        }
    }

    private void withdraw(long until, Consumer<Reply> answered) {
        engine.ask(releaseCommand(), r -> {
            boolean wasDoubtful = isDoubtful;
            isDoubtful = r.isPassing() && (isDoubtful || r.isDoubtful());
            if (r.isPassing() && engine.host.now() < until && !engine.isClosed) {
                engine.after(Words.RETRY, () -> withdraw(until, later -> { }));
            } else if (!r.isPassing() && wasDoubtful) {
                // The server may execute a copy of the request after the first RELEASE.
                engine.after(Words.RELEASE_AGAIN, () -> engine.ask(releaseCommand(), last -> engine.noteUnsent(name, -1)));
            } else {
                engine.noteUnsent(name, -1);
            }
            answered.accept(r);
        });
    }
}
