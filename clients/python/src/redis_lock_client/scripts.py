"""The same locks on a server without the module: scripts on the same keys, which answer as the commands do.

A lock is a String with the token and the lease as its time to live, as redis-py's Lock and the module's LOCK.ACQUIRE
have it. So holders with and without the module exclude each other.
"""

from __future__ import annotations

from .protocol import Request, Word

_HOLDER = """
local kind = redis.call('type', KEYS[1])['ok']
local holder = kind == 'string' and redis.call('get', KEYS[1]) or false
if kind == 'none' then return redis.error_reply('NOTHELD Nobody holds this lock') end
if holder ~= ARGV[1] then return redis.error_reply('NOTOWNER Somebody else holds this lock') end
"""

_TAKE = """
local taken
if ARGV[2] == '' then taken = redis.call('set', KEYS[1], ARGV[1], 'NX')
else taken = redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) end
if taken then return 1 end
if redis.call('type', KEYS[1])['ok'] == 'string' and redis.call('get', KEYS[1]) == ARGV[1] then return 1 end
return false
"""

_RELEASE = (
    _HOLDER
    + """
redis.call('del', unpack(KEYS))
if KEYS[2] then
    redis.call('lpush', KEYS[2], 1)
    redis.call('pexpire', KEYS[2], ARGV[2])
end
return 0
"""
)

_EXTEND = (
    _HOLDER
    + """
local left = redis.call('pttl', KEYS[1])
if left < 0 then return redis.error_reply('NOLEASE The lock has no lease') end
local lease = tonumber(ARGV[2])
if ARGV[3] == '1' then lease = lease + left end
redis.call('pexpire', KEYS[1], lease)
return lease
"""
)

_INFO = """
local kind = redis.call('type', KEYS[1])['ok']
local holder = kind == 'string' and redis.call('get', KEYS[1]) or false
return {'state', kind == 'none' and 'free' or 'mutex', 'owner', holder, 'lease-ms', redis.call('pttl', KEYS[1])}
"""


def take(request: Request) -> list[Word]:
    """As LOCK.ACQUIRE without BLOCK."""
    lease = "" if request.lease_ms is None else request.lease_ms
    return ["EVAL", _TAKE, 1, request.key, request.token, lease]


def release(request: Request) -> list[Word]:
    """As LOCK.RELEASE, for who holds the lock."""
    if request.signal is None:
        return ["EVAL", _RELEASE, 1, request.key, request.token]
    return ["EVAL", _RELEASE, 2, request.key, request.signal[0], request.token, request.signal[1]]


def extend(request: Request, lease_ms: int, add: bool) -> list[Word]:
    """As LOCK.EXTEND."""
    return ["EVAL", _EXTEND, 1, request.key, request.token, lease_ms, int(add)]


def info(key: bytes) -> list[Word]:
    """As much of LOCK.INFO as the package asks for."""
    return ["EVAL", _INFO, 1, key]
