package redislock;

import java.lang.System.Logger.Level;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.function.Consumer;

/**
 * One acquisition of a lock, with a token of its own: the request, and then the lock that is held. Its end is that of the lease by the local
 * clock, counted from before the request; while a session is open, there is none.
 *
 * <pre>
 *   held   the end has come, or the server says that the token does not hold it   lost: what waits for the loss runs
 *   held   a third of the lease has passed, renewed or a session; a late grant    EXTEND; its reply sets the end
 *   held   the connection of a session is lost                                    the end is that of the grace period; EXTEND, then the
 *                                                                                 request: the session goes on
 *   held   detach                                                                 released, nothing is sent
 *   any    release                                                                released: RELEASE
 * </pre>
 */
final class Claim extends Request {
    enum State { NEW, HELD, LOST, RELEASED }

    /** Has it while this process must release it: closed Locks release what they hold. */
    private final Set<Claim> held;
    State state = State.NEW;
    /** How many times the owner of a re-entrant lock has acquired it. */
    int count;
    /** The first Hold, to which the others refer. If the garbage collection takes it, nobody can release the lock. */
    private WeakReference<Object> holder;
    private final boolean renews;
    /** 0 while a session is open. */
    private long endsAt;
    /** The end if the EXTEND after a late grant has no reply; otherwise 0. */
    private long certainEnd;
    /** The latest lease for which there is a reply, while {@link #lease} is the latest one that was sent, and how many there were. */
    private long confirmed;
    private long changes;
    /** When EXTEND is due, 0 if none is. */
    private long renewAt;
    private boolean isRenewing;
    private Link sessionOn;
    private Engine.Timer timer;
    private boolean isWatched;
    private List<Runnable> losses = new ArrayList<>();

    Claim(Engine engine, LockSpec spec, String name, String token, Set<Claim> held) {
        super(engine, spec, name, token);
        this.held = held;
        renews = spec.renews();
    }

    /** Returns whether it is held, as far as is known. */
    boolean isHeld() {
        return state == State.HELD && (endsAt == 0 || engine.host.now() < endsAt);
    }

    /** Returns the first Hold that is in use, which is the given one if there is none. */
    Object first(Object hold) {
        Object first = holder == null ? null : holder.get();
        if (first == null) {
            holder = new WeakReference<>(hold);
        }
        return first == null ? hold : first;
    }

    /** Notes one more acquisition by the owner of a re-entrant lock, if it holds the lock already. Otherwise the rest goes on. */
    void enterOuter(Consumer<Outcome> then, Runnable rest) {
        Claim outer = spec.kind == LockSpec.Kind.REENTRANT ? engine.owners.get(queueKey()) : null;
        if (outer == null) {
            rest.run();
            return;
        }
        if (outer.state != State.HELD) {
            then.accept(Outcome.of(Failure.LOST));
            return;
        }
        outer.count++;
        if (outer.endsAt == 0 || engine.host.now() + lease <= outer.endsAt || outer.renews) {
            then.accept(Outcome.of(outer));
            return;
        }
        outer.extend(lease, r -> {
            Failure failure = outer.asHolder(r);
            outer.count -= failure == null ? 0 : 1;
            then.accept(failure == null ? Outcome.of(outer) : Outcome.of(failure));
        });
    }

    /** Notes that the lock is held. A grant that comes late has lost a part of its lease: EXTEND follows, and its reply sets the end. */
    void begin() {
        state = State.HELD;
        count = 1;
        confirmed = lease;
        long now = engine.host.now();
        if (spec.session) {
            sessionOn = link;
            watch();
        } else {
            endsAt = sentAt + lease;
        }
        renewAt = nextRenewal(sentAt, lease);
        if (renewAt != 0) {
            held.add(this);
        }
        if (spec.kind == LockSpec.Kind.REENTRANT) {
            engine.owners.put(queueKey(), this);
        }
        if (!spec.session && now - sentAt > lease / Words.LATE_PART) {
            certainEnd = endsAt;
            endsAt = now + lease;
            renewAt = now;
        }
        schedule();
    }

    /** Takes a lock over that another process holds by the token. */
    void attach(Consumer<Outcome> then) {
        isKnown = true;
        sentAt = engine.host.now();
        Consumer<Reply> begin = r -> {
            Failure failure = Failure.ofHolder(r);
            if (failure == null) {
                link = r.link();
                begin();
            }
            then.accept(failure == null ? Outcome.of(this) : Outcome.of(failure));
        };
        engine.ask(extendCommand(lease, false), r -> {
            if (spec.session && !r.isFailed()) {
                request(takeCommand(false), begin);
            } else {
                begin.accept(r);
            }
        });
    }

    // The lock that is held.

    /** Returns the failure of a reply to the holder. The lock is lost if the server says so. */
    Failure asHolder(Reply r) {
        Failure failure = Failure.ofHolder(r);
        if (failure == Failure.LOST) {
            lose();
        }
        return failure;
    }

    /** Returns when a lease is renewed that begins at a time. */
    private long nextRenewal(long from, long length) {
        return spec.session || renews ? from + length / Words.RENEWALS : 0;
    }

    /** Returns whether a session has no connection. */
    private boolean isCut() {
        return spec.session && sessionOn == null;
    }

    /**
     * Returns how long the server certainly keeps the lock after it has set a lease: it may notice later that the connection of the session is
     * lost, and then gives it the grace period.
     */
    private long certain(long length) {
        return isCut() ? Math.min(length, graceSent) : length;
    }

    /**
     * Sets the lease, from now on, or renews it if the length is 0. No renewal with the former lease follows, unless it fails. A reply counts if
     * the lease was not changed after its command was sent.
     */
    void extend(long length, Consumer<Reply> then) {
        // When, with what lease and after which change it was sent.
        long[] sent = {0, 0, 0};
        engine.ask(name, () -> {
            if (state != State.HELD) {
                return null;
            }
            if (length != 0) {
                lease = length;
                changes++;
            }
            sent[0] = engine.host.now();
            sent[1] = lease;
            sent[2] = changes;
            // The lease may be shorter even if the reply is lost.
            endsAt = Math.min(endsAt, sent[0] + lease);
            renewAt = isCut() ? renewAt : nextRenewal(sent[0], lease);
            schedule();
            return extendCommand(lease, length == 0);
        }, r -> {
            boolean isLatest = sent[2] == changes;
            if (r.isFailed()) {
                endsAt = certainEnd == 0 ? endsAt : Math.min(endsAt, certainEnd);
                certainEnd = 0;
                if (length != 0 && isLatest) {
                    lease = confirmed;
                    changes++;
                    // What is left is renewed before it ends.
                    renewAt = isCut() ? renewAt : nextRenewal(endsAt == 0 ? engine.host.now() : endsAt - lease, lease);
                }
            } else if (isLatest) {
                confirmed = sent[1];
                certainEnd = 0;
                endsAt = endsAt == 0 ? 0 : Math.max(endsAt, sent[0] + certain(sent[1]));
            }
            schedule();
            then.accept(r);
        });
    }

    /** Runs a task outside of the engine when the lock is lost. */
    void onLoss(Runnable task) {
        if (state == State.LOST) {
            engine.host.outside(task);
        } else if (state == State.HELD) {
            losses.add(task);
            watch();
            schedule();
        }
    }

    /** Makes the server report the changes of the key. */
    private void watch() {
        if (!isWatched) {
            isWatched = true;
            engine.watches.computeIfAbsent(name, key -> new Watch(engine, key)).add(this);
        }
    }

    /** Sets the timer for what comes next: the renewal or the end. A lock that is neither watched nor renewed has none. */
    private void schedule() {
        engine.cancel(timer);
        timer = null;
        if (state != State.HELD || !isWatched && renewAt == 0) {
            return;
        }
        boolean isRenewal = !isRenewing && renewAt != 0 && (endsAt == 0 || renewAt < endsAt);
        if (isRenewal || endsAt != 0) {
            timer = engine.at(isRenewal ? renewAt : endsAt, () -> due(false));
        }
    }

    private void due(boolean isSecond) {
        long now = engine.host.now();
        if (endsAt != 0 && now >= endsAt) {
            if (!isSecond && now - endsAt > Words.LATE / 10) {
                // This process has stalled: the replies that have come since are read first.
                timer = engine.after(Words.LATE / 100, () -> due(true));
                return;
            }
            lose();
        } else if (renewAt != 0 && now >= renewAt) {
            renew();
        } else {
            schedule();
        }
    }

    /** Renews the lease, or gives the lock to a session of the present connection. Only the server's word ends the lock. */
    private void renew() {
        noteCut();
        if (isRenewing || state != State.HELD) {
            return;
        }
        if (holder != null && holder.get() == null) {
            engine.log(Level.WARNING, "a lock was not released before its Hold was collected: " + name);
            abandon();
            return;
        }
        isRenewing = true;
        schedule();
        boolean wasCut = isCut();
        long before = changes;
        extend(0, r -> {
            if (wasCut && !r.isFailed() && state == State.HELD) {
                resume(before);
            } else {
                renewed(r, before);
            }
        });
    }

    private void renewed(Reply r, long before) {
        isRenewing = false;
        // Otherwise an extension of the caller has set the time.
        if (asHolder(r) != null && (isCut() || before == changes)) {
            long pause = Words.RENEWALS * Words.RETRY;
            renewAt = nextRenewal(engine.host.now(), r.isPassing() ? pause : Math.max(certain(lease), pause));
        }
        schedule();
    }

    /** Asks for the lock that is held, which begins a session. The request alone would acquire a lock that is free by now. */
    private void resume(long before) {
        request(takeCommand(true), r -> {
            if (state != State.HELD) {
                if (isDoubtful) {
                    // The server may execute it after RELEASE.
                    withdraw(none -> { });
                }
            } else if (r.isNull()) {
                lose();
            } else if (!r.isFailed()) {
                sessionOn = link;
                endsAt = 0;
                renewAt = nextRenewal(sentAt, lease);
                noteCut();
            }
            renewed(r, before);
        });
    }

    /**
     * Notes that the connection of the session is lost, or that the slot of the key has moved: the server keeps the lock for the grace period that
     * was sent. The session is to be continued.
     */
    void noteCut() {
        if (state == State.HELD && sessionOn != null && engine.linkOf(name) != sessionOn) {
            sessionOn = null;
            renewAt = engine.host.now();
            endsAt = renewAt + graceSent - Words.RETRY;
            schedule();
        }
    }

    void lose() {
        if (state != State.HELD) {
            return;
        }
        List<Runnable> tasks = losses;
        end(State.LOST);
        tasks.forEach(engine.host::outside);
        if (spec.session) {
            // The server may still renew it.
            withdraw(r -> { });
        }
    }

    /** Ends what renews and watches the lock. */
    private void end(State next) {
        state = next;
        losses = new ArrayList<>();
        schedule();
        if (isWatched) {
            isWatched = false;
            engine.watches.get(name).remove(this);
        }
        held.remove(this);
        if (next == State.RELEASED) {
            engine.owners.remove(queueKey(), this);
        }
    }

    /** Leaves the lock as it is. */
    Failure detach() {
        if (spec.session || count > 1) {
            return Failure.argument("a session or a lock that is acquired twice stays where it is");
        }
        if (state != State.HELD) {
            return Failure.LOST;
        }
        end(State.RELEASED);
        return null;
    }

    // The release.

    /** Releases the lock, and calls back with the failure or null after the reply. */
    void release(Consumer<Failure> then) {
        if (state == State.RELEASED || --count > 0) {
            then.accept(state == State.HELD ? null : Failure.LOST);
            return;
        }
        boolean wasLost = state == State.LOST;
        end(State.RELEASED);
        withdraw(r -> {
            if (wasLost || r.isNull() || r.isNotHeld() && !r.isRepeated()) {
                then.accept(Failure.LOST);
            } else {
                // After a lost connection, a repeated RELEASE finds nothing if the first one has worked.
                then.accept(r.isNotHeld() || !r.isFailed() ? null : Failure.of(r));
            }
        });
    }

    /** Releases the lock in the background, unless its owner has it still. */
    void abandon() {
        if (state == State.HELD) {
            if (--count > 0) {
                return;
            }
            end(State.RELEASED);
        }
        withdraw(r -> { });
    }
}
