/**
 * The same locks on a server without the module: scripts on the same keys, which reply as the commands do.
 *
 * A mutex is a String with the token; a re-entrant lock is a Hash with the owner and the number of holds, as in
 * Redisson; the lease is the key's time to live. The commands of the module use the same layout, so holders with and
 * without the module exclude each other.
 *
 * ARGV: the token, the lease in milliseconds, the type of the key.
 */

/** The beginning of each script reads the state of the lock, and checks the lease before anything is written. */
const BEGIN = `
local key, caller, lease = KEYS[1], ARGV[1], tonumber(ARGV[2])
local kind, holder = redis.call('type', key)['ok'], false
if kind == 'string' then holder = redis.call('get', key)
elseif kind == 'hash' and redis.call('hlen', key) == 1 then holder = redis.call('hkeys', key)[1]
elseif kind ~= 'none' and kind ~= 'zset' then
    return redis.error_reply('WRONGTYPE Operation against a key holding the wrong kind of value')
end
local not_held = redis.error_reply(kind == 'none' and 'NOTHELD No client holds this lock' or 'NOTOWNER Another client holds this lock')
`;

/** Stands in for LOCK.ACQUIRE and LOCK.REENTER. */
export const TAKE = `${BEGIN}
if kind == 'none' then
    if ARGV[3] == 'hash' then redis.call('hset', key, caller, 1) else redis.call('set', key, caller) end
    redis.call('pexpire', key, lease)
    return 1
end
if kind ~= ARGV[3] or holder ~= caller then return false end
local left = redis.call('pttl', key)
if left >= 0 and lease > left then redis.call('pexpire', key, lease) end
return 1
`;

/** Stands in for LOCK.RELEASE. */
export const RELEASE = `${BEGIN}
if holder ~= caller then return not_held end
redis.call('del', key)
return 0
`;

/** Stands in for LOCK.INFO, with the fields that the package needs. */
export const INFO = `${BEGIN}
return {'state', kind == 'none' and 'free' or kind, 'owner', holder}
`;

/** Stands in for LOCK.EXTEND. */
export const EXTEND = `${BEGIN}
if holder ~= caller then return not_held end
redis.call('pexpire', key, lease)
return lease
`;
