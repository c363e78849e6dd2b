//! The locks on a server without the module: a script on the same keys, in the same layout, which replies as the commands do.

/// Stands in for a command. ARGV: the token, the lease in milliseconds, and what to do: `info`, `release`, `extend`, or to
/// acquire the lock, the type of its key.
pub(crate) const SCRIPT: &str = r"
local key, caller, lease, action = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local kind, holder, left = redis.call('type', key)['ok'], false, redis.call('pttl', key)
if kind == 'hash' and redis.call('hlen', key) == 1 then holder = redis.call('hkeys', key)[1]
elseif kind ~= 'none' and kind ~= 'zset' then holder = redis.call('get', key)  -- WRONGTYPE if it is no lock
end
if action == 'info' then return {'state', kind == 'none' and 'free' or kind, 'owner', holder} end
if action == 'string' or action == 'hash' then
    if kind == 'none' then
        if action == 'hash' then redis.call('hset', key, caller, 1) else redis.call('set', key, caller) end
        redis.call('pexpire', key, lease)
    elseif kind ~= action or holder ~= caller then return false
    elseif left >= 0 and lease > left then redis.call('pexpire', key, lease)
    end
    return 1
end
if kind == 'none' then return redis.error_reply('NOTHELD The lock is not held') end
if holder ~= caller then return redis.error_reply('NOTOWNER The lock is held by another token') end
if action == 'release' then return redis.call('del', key) - 1 end
if left < 0 then return redis.error_reply('NOLEASE The lock has no lease and is held until it is released') end
redis.call('pexpire', key, lease)
return lease
";
