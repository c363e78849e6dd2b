"""The same locks on a server without the module: scripts on the same keys, which reply as the commands do.

A mutex is a String with the token, as in redis-py's Lock; a re-entrant lock is a Hash with the owner and the number of
holds, as in Redisson; the lease is the key's time to live. The module's commands use the same layout, so holders with
and without the module exclude each other.
"""

from __future__ import annotations

from hashlib import sha1

from .request import Request
from .resp import Word

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
local function not_held()
    if kind == 'none' then return redis.error_reply('NOTHELD Nobody holds this lock') end
    return redis.error_reply('NOTOWNER Somebody else holds this lock')
end
local function mismatch()
    return redis.error_reply('HOLDMISMATCH This is not the hold that comes next')
end
"""

# A mutex has no number of holds.
_TAKE = """
local hold = tonumber(ARGV[3])
if kind == 'none' and (hold or 1) == 1 then
    if hold then redis.call('hset', key, caller, 1) else redis.call('set', key, caller) end
    if lease then redis.call('pexpire', key, lease) end
    return 1
end
if kind ~= (hold and 'hash' or 'string') or holder ~= caller then
    return (hold or 1) > 1 and not_held()
end
if hold and hold ~= holds and hold ~= holds + 1 then return mismatch() end
if hold then redis.call('hset', key, caller, hold) end
local left = redis.call('pttl', key)
if lease and left >= 0 and lease > left then redis.call('pexpire', key, lease) end
return hold or 1
"""

_RELEASE = """
if kind == 'zset' and redis.call('zrem', key, caller) == 1 then
    local last = redis.call('zrange', key, -1, -1, 'withscores')[2]
    if last and last ~= 'inf' then redis.call('pexpireat', key, last) end
    return 0
end
if holder ~= caller then return not_held() end
local hold = tonumber(ARGV[3]) or holds
if hold == holds + 1 then return holds end
if hold ~= holds then return mismatch() end
if holds > 1 then return redis.call('hincrby', key, caller, -1) end
redis.call('del', unpack(KEYS))
if KEYS[2] then
    redis.call('lpush', KEYS[2], 1)
    redis.call('pexpire', KEYS[2], ARGV[4])
end
return 0
"""

_EXTEND = """
if holder ~= caller then return not_held() end
local left = redis.call('pttl', key)
if left < 0 then return redis.error_reply('NOLEASE This lock has no lease: it is held until it is released') end
if ARGV[3] == '1' then lease = lease + left end
redis.call('pexpire', key, lease)
return lease
"""

_INFO = """
local states = {none = 'free', string = 'mutex', hash = 'reentrant', zset = 'shared'}
return {'state', states[kind], 'owner', holder, 'lease-ms', redis.call('pttl', key)}
"""

_KEEP_FOR_EVER = """
if kind == 'zset' and redis.call('zscore', key, caller) then redis.call('zadd', key, 'inf', caller)
elseif holder ~= caller then return not_held() end
redis.call('persist', key)
return 1
"""

_DIGESTS = {
    text: sha1((_BEGIN + text).encode(), usedforsecurity=False).hexdigest()
    for text in (_TAKE, _RELEASE, _EXTEND, _INFO, _KEEP_FOR_EVER)
}
#: The scripts by their digests.
TEXTS = {digest: _BEGIN + text for text, digest in _DIGESTS.items()}


def take(request: Request, hold: int) -> list[Word]:
    """Returns the words to send instead of LOCK.ACQUIRE, or of LOCK.REENTER for the hold with this number."""
    lease = "" if request.lease_ms is None else request.lease_ms
    return _run(_TAKE, request, lease, hold if request.reentrant else "")


def release(request: Request, hold: int | None) -> list[Word]:
    """Returns the words to send instead of LOCK.RELEASE. It can release a share that the module has granted."""
    words: list[Word] = _run(_RELEASE, request, "", "" if hold is None else hold)
    if request.signal is not None:
        name, lifetime_ms = request.signal
        words[2:5] = [2, request.key, name, request.token]
        words.append(lifetime_ms)
    return words


def extend(request: Request, lease_ms: int, add: bool) -> list[Word]:
    """Returns the words to send instead of LOCK.EXTEND, for locks that are not shared."""
    return _run(_EXTEND, request, lease_ms, int(add))


def info(key: bytes) -> list[Word]:
    """Returns the words to send instead of LOCK.INFO, for the fields that the package needs."""
    return ["EVALSHA", _DIGESTS[_INFO], 1, key]


def keep_for_ever(request: Request) -> list[Word]:
    """Returns the script that removes the lease of a lock that was granted with one because NOTIFY needs it."""
    return _run(_KEEP_FOR_EVER, request)


def _run(script: str, request: Request, *words: Word) -> list[Word]:
    return ["EVALSHA", _DIGESTS[script], 1, request.key, request.token, *words]
