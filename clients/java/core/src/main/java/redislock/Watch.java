package redislock;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.function.BiPredicate;
import java.util.function.Consumer;

/**
 * Watches one key for all its claims in this process: one read after a change shows which of them hold the lock, and makes the server report
 * the next change.
 *
 * <p>A write of this process is reported as any other, so each EXTEND is followed by a read: one that comes too late to see what another
 * client has changed in between finds it in the key.
 */
final class Watch {
    private final Engine engine;
    private final String key;
    private final Set<Claim> claims = new LinkedHashSet<>();
    private final Consumer<String> listener = event -> read();
    private int pending;
    private boolean isChanged;
    private boolean isPassing;

    Watch(Engine engine, String key) {
        this.engine = engine;
        this.key = key;
        engine.listen(key, listener);
    }

    void add(Claim claim) {
        claims.add(claim);
        // Not before the claim has begun.
        engine.next(this::read);
    }

    void remove(Claim claim) {
        claims.remove(claim);
        if (claims.isEmpty()) {
            engine.unlisten(key, listener);
            engine.watches.remove(key, this);
        }
    }

    private void read() {
        if (pending > 0 || claims.isEmpty()) {
            isChanged = true;
            return;
        }
        isChanged = isPassing = false;
        pending = 1;
        Link link = engine.linkOf(key);
        link.track();
        List.copyOf(claims).forEach(Claim::noteCut);
        List<Claim> mutexes = of(LockSpec.Kind.MUTEX);
        List<Claim> shares = of(LockSpec.Kind.SHARED);
        check(link, mutexes, List.of("GET", key), (reply, n) -> reply.value().text().equals(mutexes.get(n).token));
        List<String> words = new ArrayList<>(List.of("ZMSCORE", key));
        shares.forEach(claim -> words.add(claim.token));
        check(link, shares, words, (reply, n) -> n < reply.value().items().size() && !reply.value().items().get(n).isNull());
        // A re-entrant lock has one holder: more are lost ones.
        of(LockSpec.Kind.REENTRANT).forEach(claim -> check(link, List.of(claim), List.of("HGET", key, claim.token), (reply, n) -> true));
        done(link);
    }

    private List<Claim> of(LockSpec.Kind kind) {
        return claims.stream().filter(claim -> claim.spec.kind == kind).toList();
    }

    /** Asks the server which of these hold the lock. Those that were added since are not meant by the reply. */
    private void check(Link link, List<Claim> checked, List<String> words, BiPredicate<Reply, Integer> isHolding) {
        if (checked.isEmpty()) {
            return;
        }
        pending++;
        engine.read(words, r -> {
            // Another error is one of rights: a loss is seen at the next renewal, or the lease ends.
            isPassing = isPassing || r.isPassing();
            for (int n = 0; n < checked.size(); n++) {
                if (r.isNotHeld() || !r.isFailed() && (r.isNull() || !isHolding.test(r, n))) {
                    checked.get(n).lose();
                }
            }
            done(link);
        });
    }

    private void done(Link link) {
        if (--pending > 0) {
            return;
        }
        if (isPassing || !link.isTracked()) {
            engine.after(Words.RETRY, this::read);
        } else if (isChanged || engine.linkOf(key) != link) {
            // The slot may have moved to a node that does not report changes yet.
            read();
        }
    }
}
