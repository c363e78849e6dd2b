package redislock;

import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;

/**
 * The local queues of a server: one for each lock, or owner of a re-entrant lock, in the order of arrival. Only the first waiter of a process
 * asks the server; shares next to each other ask together.
 */
final class Queues {
    private final Map<String, Set<Turn>> byKey = new HashMap<>();

    /** A place in a queue. */
    static final class Turn {
        final String key;
        final boolean isShare;
        /** The server may be asked. */
        boolean hasCome;
        /** Runs when the turn comes, unless it has come at once. */
        Runnable come = () -> { };

        Turn(String key, boolean isShare) {
            this.key = key;
            this.isShare = isShare;
        }
    }

    /** Joins a queue, unless as many as limit are in it; 0 is no limit. The result is null then. */
    Turn join(String key, boolean isShare, int limit) {
        Set<Turn> queue = byKey.computeIfAbsent(key, k -> new LinkedHashSet<>());
        if (limit > 0 && queue.size() >= limit) {
            return null;
        }
        Turn turn = new Turn(key, isShare);
        queue.add(turn);
        admit(queue);
        return turn;
    }

    /** Leaves the queue, in which the next waiters may have their turn now. */
    void leave(Turn turn) {
        Set<Turn> queue = byKey.get(turn.key);
        queue.remove(turn);
        if (queue.isEmpty()) {
            byKey.remove(turn.key);
        } else {
            admit(queue);
        }
    }

    /** Gives the waiters at the head their turn: one, or shares next to each other. */
    private static void admit(Set<Turn> queue) {
        int together = 0;
        for (Turn turn : queue) {
            if (together == Words.MAX_TOGETHER || !turn.isShare && together > 0) {
                return;
            }
            together++;
            if (!turn.hasCome) {
                turn.hasCome = true;
                turn.come.run();
            }
            if (!turn.isShare) {
                return;
            }
        }
    }
}
