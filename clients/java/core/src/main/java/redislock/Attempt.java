package redislock;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/** The acquisition of one lock, or of several in the order of their names. None is held if one cannot be acquired. */
final class Attempt {
    /** It is completed outside of the engine, with a failure as an outcome. */
    final CompletableFuture<Outcome> future = new CompletableFuture<>();
    private final List<Claim> claims;
    private final Set<Attempt> open;
    private final List<Claim> held = new ArrayList<>();
    private final long deadline;
    private final boolean isTry;
    private Acquisition current;
    private Outcome outcome;
    private boolean isCancelled;

    /** @param open has it until it ends */
    Attempt(List<Claim> claims, long deadline, boolean isTry, Set<Attempt> open) {
        this.claims = claims;
        this.open = open;
        this.deadline = deadline;
        this.isTry = isTry;
    }

    void start() {
        open.add(this);
        current = new Acquisition(claims.get(held.size()), deadline, this::next);
        if (isTry) {
            current.tryOnce();
        } else {
            current.start();
        }
    }

    private void next(Outcome outcome) {
        if (outcome.failure() != null) {
            undo(outcome);
            return;
        }
        held.addAll(outcome.claims());
        if (isCancelled) {
            held.forEach(Claim::abandon);
        } else if (held.size() < claims.size()) {
            start();
        } else if (held.stream().allMatch(claim -> claim.state == Claim.State.HELD)) {
            finish(new Outcome(held, null));
        } else {
            undo(Outcome.of(Failure.LOST));
        }
    }

    private void undo(Outcome outcome) {
        release(held, null, ignored -> finish(outcome));
    }

    void finish(Outcome result) {
        open.remove(this);
        if (outcome == null) {
            outcome = result;
            claims.get(0).engine.host.outside(() -> future.complete(result));
        }
    }

    /** Releases locks, the last one first, and calls back with the first failure. */
    static void release(List<Claim> claims, Failure failure, Consumer<Failure> then) {
        if (claims.isEmpty()) {
            then.accept(failure);
        } else {
            claims.get(claims.size() - 1).release(next ->
                release(claims.subList(0, claims.size() - 1), failure != null ? failure : next, then));
        }
    }

    /** Ends the attempt. What it holds or is granted is released in the background. */
    void cancel(Failure why) {
        if (!isCancelled) {
            isCancelled = true;
            if (outcome == null) {
                finish(Outcome.of(why));
                held.forEach(Claim::abandon);
                held.clear();
                current.stop(Failure.Kind.CANCELLED);
            } else {
                outcome.claims().forEach(Claim::abandon);
            }
        }
    }
}
