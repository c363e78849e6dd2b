//! The locks on a server without the module: scripts on the same keys, in the same layout, which reply as the commands do.
//!
//! ARGV: the token, the lease in milliseconds, the type of the key.

macro_rules! script {
    ($text:literal) => {
        concat!(
            r"
local key, caller, lease = KEYS[1], ARGV[1], tonumber(ARGV[2])
local kind, holder = redis.call('type', key)['ok'], false
if kind == 'string' then holder = redis.call('get', key)
elseif kind == 'hash' and redis.call('hlen', key) == 1 then holder = redis.call('hkeys', key)[1]
elseif kind ~= 'none' and kind ~= 'zset' then
    return redis.error_reply('WRONGTYPE Operation against a key holding the wrong kind of value')
end
if holder ~= caller and ARGV[3] == nil then
    if kind == 'none' then return redis.error_reply('NOTHELD Nobody holds this lock') end
    return redis.error_reply('NOTOWNER Somebody else holds this lock')
end
",
            $text
        )
    };
}

/// Stands in for LOCK.ACQUIRE and LOCK.REENTER.
pub(crate) const TAKE: &str = script!(
    r"
if kind == 'none' then
    if ARGV[3] == 'hash' then redis.call('hset', key, caller, 1) else redis.call('set', key, caller) end
    redis.call('pexpire', key, lease)
    return 1
end
if kind ~= ARGV[3] or holder ~= caller then return false end
local left = redis.call('pttl', key)
if left >= 0 and lease > left then redis.call('pexpire', key, lease) end
return 1
"
);

/// Stands in for LOCK.RELEASE.
pub(crate) const RELEASE: &str = script!(
    r"
redis.call('del', key)
return 0
"
);

/// Stands in for LOCK.EXTEND.
pub(crate) const EXTEND: &str = script!(
    r"
if redis.call('pttl', key) < 0 then return redis.error_reply('NOLEASE This lock has no lease') end
redis.call('pexpire', key, lease)
return lease
"
);
