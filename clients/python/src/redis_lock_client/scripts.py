"""The same locks on a server without the module: scripts on the same keys, which reply as the commands do.

A mutex is a String with the token, as in redis-py's Lock; a re-entrant lock is a Hash with the owner and the number of
holds, as in Redisson; the lease is the key's time to live. The module's commands use the same layout, so holders with
and without the module exclude each other.

ARGV: the token, the lease in milliseconds, the number of a hold or 1 for ADD.
"""

# How each script begins: it reads the state of the lock; one with shares has no holder here. The lease is checked
# before anything is written: PEXPIRE deletes a key if the time is not positive, and earlier writes of the script stay.
_BEGIN = """
local key, caller, lease = KEYS[1], ARGV[1], tonumber(ARGV[2])
if lease and not (lease > 0 and lease < 2 ^ 53) then return redis.error_reply('ERR invalid expire time') end
local kind, holder, holds = redis.call('type', key)['ok'], false, 0
if kind == 'string' then
    holder, holds = redis.call('get', key), 1
elseif kind == 'hash' and redis.call('hlen', key) == 1 then
    local field = redis.call('hgetall', key)
    holder, holds = field[1], string.find(field[2], '^[1-9]%d*$') and tonumber(field[2])
end
if not (kind == 'none' or kind == 'zset' or holder and holds) then
    return redis.error_reply('WRONGTYPE Operation against a key holding the wrong kind of value')
end
local free, foreign = 'NOTHELD Nobody holds this lock', 'NOTOWNER Somebody else holds this lock'
local not_held = redis.error_reply(kind == 'none' and free or foreign)
local mismatch = redis.error_reply('HOLDMISMATCH This is not the hold that comes next')
"""

#: In place of LOCK.ACQUIRE and LOCK.REENTER. A mutex has no number of holds.
TAKE = """
local hold = tonumber(ARGV[3])
if kind == 'none' and (hold or 1) == 1 then
    if hold then redis.call('hset', key, caller, 1) else redis.call('set', key, caller) end
    if lease then redis.call('pexpire', key, lease) end
    return 1
end
if kind ~= (hold and 'hash' or 'string') or holder ~= caller then return (hold or 1) > 1 and not_held end
if hold and hold ~= holds and hold ~= holds + 1 then return mismatch end
if hold then redis.call('hset', key, caller, hold) end
local left = redis.call('pttl', key)
if lease and left >= 0 and lease > left then redis.call('pexpire', key, lease) end
return hold or 1
"""

#: In place of LOCK.RELEASE. It can release a share that the module has granted.
RELEASE = """
if kind == 'zset' and redis.call('zrem', key, caller) == 1 then
    local last = redis.call('zrange', key, -1, -1, 'withscores')[2]
    if last and last ~= 'inf' then redis.call('pexpireat', key, last) end
    return 0
end
if holder ~= caller then return not_held end
local hold = tonumber(ARGV[3]) or holds
if hold == holds + 1 then return holds end
if hold ~= holds then return mismatch end
if holds > 1 then return redis.call('hincrby', key, caller, -1) end
redis.call('del', key)
return 0
"""

#: In place of LOCK.EXTEND, for locks that are not shared.
EXTEND = """
if holder ~= caller then return not_held end
local left = redis.call('pttl', key)
if left < 0 then return redis.error_reply('NOLEASE This lock has no lease: it is held until it is released') end
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
