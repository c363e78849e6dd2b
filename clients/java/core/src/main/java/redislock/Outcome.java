package redislock;

import java.util.List;

/** What an attempt has become: the locks that are held, or a failure. */
record Outcome(List<Claim> claims, Failure failure) {
    static Outcome of(Claim claim) {
        return new Outcome(List.of(claim), null);
    }

    static Outcome of(Failure failure) {
        return new Outcome(List.of(), failure);
    }
}
