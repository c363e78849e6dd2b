package redislock;

import java.util.ArrayList;
import java.util.List;

/**
 * The same locks on a server without the module: scripts on the same keys in the same layout, which reply as the commands do. A mutex is a
 * String with the token, a re-entrant lock a Hash with the owner and the number of holds.
 */
final class Scripts {
    /** ARGV: the token, the lease in milliseconds, the type of the key. */
    private static final String BEGIN = """
            local key, caller, lease = KEYS[1], ARGV[1], tonumber(ARGV[2])
            local kind, holder = redis.call('type', key)['ok'], false
            if kind == 'string' then holder = redis.call('get', key)
            elseif kind == 'hash' and redis.call('hlen', key) == 1 then holder = redis.call('hkeys', key)[1]
            elseif kind ~= 'none' and kind ~= 'zset' then
                return redis.error_reply('WRONGTYPE Operation against a key holding the wrong kind of value')
            end
            local not_held = redis.error_reply(kind == 'none' and 'NOTHELD No client holds this lock'
                or 'NOTOWNER Another client holds this lock')
            """;
    static final String TAKE = BEGIN + """
            if kind == 'none' then
                if ARGV[3] == 'hash' then redis.call('hset', key, caller, 1) else redis.call('set', key, caller) end
                redis.call('pexpire', key, lease)
                return 1
            end
            if kind ~= ARGV[3] or holder ~= caller then return false end
            local left = redis.call('pttl', key)
            if left >= 0 and lease > left then redis.call('pexpire', key, lease) end
            return 1
            """;
    static final String RELEASE = BEGIN + """
            if holder ~= caller then return not_held end
            redis.call('del', key)
            return 0
            """;
    static final String EXTEND = BEGIN + """
            if holder ~= caller then return not_held end
            redis.call('pexpire', key, lease)
            return lease
            """;

    private Scripts() { }

    /** Returns the call of the script that stands in for a command, or null if there is none. */
    static List<String> call(String script, List<String> words) {
        if (script == null) {
            return null;
        }
        List<String> call = new ArrayList<>(List.of("EVAL", script, "1", words.get(1), words.get(2)));
        if (words.size() > 4) {
            call.add(words.get(4));
        }
        switch (words.get(0)) {
            case "LOCK.ACQUIRE" -> call.add("string");
            case "LOCK.REENTER" -> call.add("hash");
            default -> { }
        }
        return call;
    }
}
