package redislock;

import java.util.List;
import java.util.function.Consumer;

/**
 * A wait for one lock. If it ends without the lock, for whatever reason, the server forgets the request.
 *
 * <pre>
 *   queue -> ask -> held
 *             |  nil, and messages come      wait in the queue of the server -> granted: held
 *             |                                  | another message, 5 s without one, a lost connection: wait again
 *             |  nil, and none come, an outage   pause -> ask
 *             |  an error that stays             failed: RELEASE
 *   any: the patience is over, cancelled         RELEASE; an outage if it has no reply
 * </pre>
 */
final class Acquisition {
    private final Engine engine;
    private final Claim claim;
    private final long deadline;
    private final Consumer<Outcome> then;
    private final Consumer<String> listener = this::hear;
    private Queues.Turn turn;
    private Engine.Timer patience;
    private Engine.Timer timer;
    private long pause = Words.FIRST_PAUSE;
    /** Callbacks of an earlier round are not for the present one. */
    private int round;
    private boolean isWaiting;
    private boolean isOver;
    /** The server has not replied since this happened. */
    private Failure outage;

    /** @param deadline when the patience is over, 0: never */
    Acquisition(Claim claim, long deadline, Consumer<Outcome> then) {
        this.claim = claim;
        this.deadline = deadline;
        this.then = then;
        engine = claim.engine;
    }

    /** Asks one time. It waits for releases of this process, and for nothing else. */
    void tryOnce() {
        claim.enterOuter(this::entered, () -> engine.settle(claim.name, Words.OWN_RETRIES, () -> {
            if (isOver) {
                return;
            }
            claim.request(claim.takeCommand(false), r -> {
                if (r.isGrant()) {
                    held();
                } else if (!isOver) {
                    fail(r.isFailed() ? Failure.of(r) : new Failure(Failure.Kind.TIMEOUT, "another holder has it", null));
                }
            });
        }));
    }

    /** The owner of a re-entrant lock holds it already. */
    private void entered(Outcome outcome) {
        if (isOver) {
            outcome.claims().forEach(Claim::abandon);
        } else {
            finish(outcome);
        }
    }

    void start() {
        turn = engine.queues.join(claim.queueKey(), claim.spec.kind == LockSpec.Kind.SHARED, claim.spec.maxWaiters);
        if (turn == null) {
            finish(Outcome.of(new Failure(Failure.Kind.FULL, "the queue of this process is full", null)));
            return;
        }
        if (deadline != 0) {
            patience = engine.at(deadline, () -> stop(Failure.Kind.TIMEOUT));
        }
        if (turn.hasCome) {
            begin(false);
        } else {
            turn.come = () -> engine.next(() -> begin(true));
        }
    }

    private void begin(boolean isQueued) {
        if (!isOver) {
            claim.enterOuter(this::entered, () -> ask(isQueued));
        }
    }

    /** Asks for the lock. If this process waits for it already, it asks for a queue entry first. */
    private void ask(boolean isQueued) {
        round++;
        isWaiting = false;
        Link link = engine.linkOf(claim.name);
        outage = link.isOpen() ? outage : Failure.connection("the connection is not open");
        String channel = isQueued && engine.hasModule() ? link.subscribe(claim.name) : null;
        if (channel != null) {
            join(link, channel);
        } else {
            take();
        }
    }

    private void take() {
        int now = round;
        claim.request(claim.takeCommand(true), r -> {
            if (now != round || isOver) {
                return;
            }
            Link link = engine.linkOf(claim.name);
            String channel = r.isNull() && engine.hasModule() ? link.subscribe(claim.name) : null;
            if (r.isGrant()) {
                held();
            } else if (r.isFailed()) {
                failed(r);
            } else {
                outage = null;
                if (channel != null) {
                    join(link, channel);
                } else {
                    pause();
                }
            }
        });
    }

    private void join(Link link, String channel) {
        int now = round;
        engine.listen(claim.token, listener);
        claim.request(claim.waitCommand(deadline == 0 ? Words.MAX_BLOCK : deadline - engine.host.now(), channel), r -> {
            if (now != round || isOver) {
                return;
            }
            switch (r.code()) {
                case "NOSUBSCRIBER", "NOPERM", "ERR", "UNKNOWN" -> {
                    // The server sends no message, or not here: in a cluster the slot may have moved.
                    link.forgetChannel();
                    pause();
                }
                // The module has vanished. The script goes on, if there is one.
                case "NEEDSMODULE" -> ask(false);
                default -> {
                    if (r.isGrant()) {
                        held();
                    } else if (r.isFailed()) {
                        failed(r);
                    } else {
                        isWaiting = true;
                        outage = null;
                        timer = engine.after(Words.SILENCE, this::again);
                    }
                }
            }
        });
    }

    private void hear(String event) {
        if (event.equals("granted")) {
            held();
        } else if (isWaiting) {
            // All other events have the same answer.
            again();
        }
    }

    private void again() {
        quiet();
        ask(true);
    }

    private void pause() {
        quiet();
        round++;
        timer = engine.after(pause, () -> ask(false));
        pause = Math.min(2 * pause, Words.LAST_PAUSE);
    }

    private void failed(Reply r) {
        if (r.isPassing() && engine.mayComeBack()) {
            outage = Failure.of(r);
            pause();
        } else {
            fail(Failure.of(r));
        }
    }

    private void fail(Failure failure) {
        claim.withdraw(r -> { });
        finish(Outcome.of(failure));
    }

    private void held() {
        if (isOver) {
            return;
        }
        claim.begin();
        finish(Outcome.of(claim));
    }

    /** Ends the wait: the patience is over, or the caller has cancelled it. RELEASE is sent before the next waiter asks. */
    void stop(Failure.Kind kind) {
        if (isOver) {
            return;
        }
        boolean hasBegun = turn != null && turn.hasCome;
        close();
        Failure timeout = new Failure(kind, "it was not free in time", null);
        boolean isCertain = kind == Failure.Kind.CANCELLED || outage != null || !hasBegun && engine.isHeard();
        Consumer<Reply> answered = isCertain ? r -> { }
            : engine.orLate(failure -> then.accept(Outcome.of(failure == null ? timeout : failure)));
        // The reply to the withdrawal shows that the server is there.
        claim.withdraw(hasBegun ? answered : r -> { });
        if (turn != null) {
            engine.queues.leave(turn);
        }
        if (isCertain) {
            then.accept(Outcome.of(kind == Failure.Kind.CANCELLED || outage == null ? timeout : outage));
        } else if (!hasBegun) {
            engine.read(List.of("GET", claim.name), answered);
        }
    }

    private void finish(Outcome outcome) {
        close();
        if (turn != null) {
            engine.queues.leave(turn);
        }
        then.accept(outcome);
    }

    private void close() {
        isOver = true;
        quiet();
        engine.cancel(patience);
    }

    private void quiet() {
        engine.cancel(timer);
        engine.unlisten(claim.token, listener);
    }
}
