package redislock;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;

/** What all packages of the family agree on: numbers, commands, names. Times are nanoseconds. */
final class Words {
    static final long MS = 1_000_000, SECOND = 1000 * MS;
    /** The lease if none is given. It is renewed. */
    static final Duration DEFAULT_LEASE = Duration.ofSeconds(30);
    static final Duration MIN_LEASE = Duration.ofMillis(1), MAX_LEASE = Duration.ofDays(36_500), MIN_SESSION_LEASE = Duration.ofMillis(100);
    /** A grant is late if this part of the lease has passed since the request; a lease is renewed so many times in its length. */
    static final int LATE_PART = 20, RENEWALS = 3, MAX_TOGETHER = 64;
    /** The longest wait that the server is asked for: a process that has ended keeps its queue entry no longer. */
    static final long MAX_BLOCK = 15 * SECOND;
    /** The longest time for which the lock of a session is kept after a lost connection. */
    static final long MAX_GRACE = SECOND;
    /** How long a server that does not reply counts as reachable. A wait is asked for again after it, too. */
    static final long SILENCE = 5 * SECOND;
    /** How long after a deadline a reply shows that the server is there, and how long one shows it. */
    static final long LATE = SECOND, PROBE_AFTER = SECOND;
    /** How long a wait without a limit survives an outage, and a request that does not wait. */
    static final long MAX_OUTAGE = 60 * SECOND, OWN_RETRIES = SECOND;
    /** How long a server counts as one without the module. */
    static final long USE_SCRIPTS = 5 * SECOND;
    /** The pauses between two requests where the server sends no messages. They grow. */
    static final long FIRST_PAUSE = 10 * MS, LAST_PAUSE = 100 * MS;
    /** The time between two attempts to renew, to check or to connect, and before RELEASE is sent again after a lost connection. */
    static final long RETRY = 100 * MS, RELEASE_AGAIN = SECOND;

    private static final SecureRandom RANDOM = new SecureRandom();

    private Words() { }

    /** Returns 128 random bits. */
    static String random() {
        byte[] bits = new byte[16];
        RANDOM.nextBytes(bits);
        return HexFormat.of().formatHex(bits);
    }

    static long grace(long lease) {
        return Math.min(lease, MAX_GRACE);
    }

    /** Returns the request for a lock, without a wait. */
    static List<String> request(LockSpec spec, String name, String token, long lease) {
        List<String> words = new ArrayList<>(14);
        words.addAll(List.of(spec.kind.command, name, token, "PX", millis(lease)));
        if (spec.kind == LockSpec.Kind.REENTRANT) {
            words.addAll(List.of("HOLD", "1"));
        }
        if (spec.permits > 0) {
            words.addAll(List.of("LIMIT", Integer.toString(spec.permits)));
        }
        if (spec.session) {
            words.addAll(List.of("SESSION", "GRACE", millis(grace(lease))));
        }
        return words;
    }

    /** Adds to a request that it waits, and where the message goes. */
    static List<String> waiting(LockSpec spec, List<String> words, long wait, String channel) {
        words.addAll(List.of("BLOCK", millis(Math.min(Math.max(wait, MS), MAX_BLOCK)), "NOTIFY", channel));
        if (spec.maxWaiters > 0) {
            words.addAll(List.of("MAXWAITERS", Integer.toString(spec.maxWaiters)));
        }
        return words;
    }

    /** Returns a time in whole milliseconds, of which it is at least one. */
    static String millis(long time) {
        return Long.toString((time + MS - 1) / MS);
    }

    /** Returns the part of a key that decides its slot: the text in the first braces, else all of it. */
    static String hashTag(String key) {
        int open = key.indexOf('{');
        int close = open < 0 ? -1 : key.indexOf('}', open);
        return close > open + 1 ? key.substring(open + 1, close) : key;
    }

    /** Returns the slot of a key in a cluster: CRC16 (XMODEM) of its hash tag. */
    static int slot(String key) {
        int crc = 0;
        for (byte one : hashTag(key).getBytes(UTF_8)) {
            crc ^= (one & 0xff) << 8;
            for (int bit = 0; bit < 8; bit++) {
                crc = (crc & 0x8000) != 0 ? crc << 1 ^ 0x1021 : crc << 1;
            }
        }
        return (crc & 0xffff) % 16384;
    }

    /** Returns the channel of a connection, in a cluster one in the slot of a key, or null if no braces can name that slot. */
    static String channel(String id, String key, boolean isCluster) {
        if (!isCluster) {
            return "redis-lock:" + id;
        }
        String tag = hashTag(key);
        return tag.contains("}") ? null : "redis-lock:{" + tag + "}:" + id;
    }

    /** Returns the counter of a lock's fencing tokens, which is in its slot, or null if there can be none. */
    static String counter(String key, boolean isCluster) {
        boolean hasTag = !hashTag(key).equals(key);
        if (!hasTag && !key.contains("{") && !key.contains("}")) {
            return "{" + key + "}:fence";
        }
        return !hasTag && isCluster ? null : key + ":fence";
    }

    /** Returns the label of a token: what precedes the last colon, or all of it. */
    static String label(String token) {
        return token.substring(0, token.lastIndexOf(':') < 0 ? token.length() : token.lastIndexOf(':'));
    }
}
