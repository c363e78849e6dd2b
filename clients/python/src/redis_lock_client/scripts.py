"""The same locks on a server without the module: scripts on the same keys, which reply as the commands do.

A mutex is a String with the token, as in redis-py's Lock; a re-entrant lock is a Hash with the owner and the number of
holds, as in Redisson; the lease is the key's time to live. The module's commands use the same layout, so holders with
and without the module exclude each other.

ARGV: the token, the lease in milliseconds, the type of the key or 1 for ADD.
"""

# How each script begins: it reads the state of the lock; one with shares has no holder here. The lease is checked
# before anything is written: PEXPIRE deletes a key if the time is not positive, and earlier writes of the script stay.
_BEGIN = """
local key, caller, lease = KEYS[1], ARGV[1], tonumber(ARGV[2])
if lease and not (lease > 0 and lease < 2 ^ 53) then return redis.error_reply('ERR invalid expire time') end
local kind, holder = redis.call('type', key)['ok'], false
if kind == 'string' then holder = redis.call('get', key)
elseif kind == 'hash' and redis.call('hlen', key) == 1 then holder = redis.call('hkeys', key)[1]
elseif kind ~= 'none' and kind ~= 'zset' then
    return redis.error_reply('WRONGTYPE Operation against a key holding the wrong kind of value')
end
local free, foreign = 'NOTHELD The lock is not held', 'NOTOWNER The lock is held by another token'
local not_held = redis.error_reply(kind == 'none' and free or foreign)
"""

#: In place of LOCK.ACQUIRE and LOCK.REENTER.
TAKE = """
if kind == 'none' then
    if ARGV[3] == 'hash' then redis.call('hset', key, caller, 1) else redis.call('set', key, caller) end
    if lease then redis.call('pexpire', key, lease) end
    return 1
end
if kind ~= ARGV[3] or holder ~= caller then return false end
local left = redis.call('pttl', key)
if lease and left >= 0 and lease > left then redis.call('pexpire', key, lease) end
return 1
"""

#: In place of LOCK.RELEASE.
RELEASE = """
if holder ~= caller then return not_held end
redis.call('del', key)
return 0
"""

#: In place of LOCK.EXTEND, for locks that are not shared.
EXTEND = """
if holder ~= caller then return not_held end
local left = redis.call('pttl', key)
if left < 0 then return redis.error_reply('NOLEASE The lock has no lease and is held until it is released') end
if ARGV[3] == '1' then lease = lease + left end
redis.call('pexpire', key, lease)
return lease
"""

#: In place of LOCK.INFO, for the fields that the package needs.
INFO = """
local states = {none = 'free', string = 'mutex', hash = 'reentrant', zset = 'shared'}
return {'state', states[kind], 'owner', holder, 'lease-ms', redis.call('pttl', key)}
"""

#: Removes the lease of a lock that was granted with one because NOTIFY needs it.
KEEP_FOR_EVER = """
if kind == 'zset' and redis.call('zscore', key, caller) then redis.call('zadd', key, 'inf', caller)
elseif holder ~= caller then return not_held end
redis.call('persist', key)
return 1
"""

TAKE, RELEASE, EXTEND, INFO, KEEP_FOR_EVER = (_BEGIN + text for text in (TAKE, RELEASE, EXTEND, INFO, KEEP_FOR_EVER))
