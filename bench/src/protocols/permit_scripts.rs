//! The Lua scripts with which client libraries take a permit of a semaphore: redis-semaphore's as published, Redisson's in
//! words of our own, which call the same commands.

use super::scripts::Script;

/// KEYS: the semaphore. ARGV: the number of permits, the token, lease in ms, the client's time.
pub const REDIS_SEMAPHORE_ACQUIRE: Script = Script {
    source: "redis-semaphore 5.8.0, semaphore/acquire/lua.ts",
    text: "
  local key = KEYS[1]
  local limit = tonumber(ARGV[1])
  local identifier = ARGV[2]
  local lockTimeout = tonumber(ARGV[3])
  local now = tonumber(ARGV[4])
  local expiredTimestamp = now - lockTimeout

  redis.call('zremrangebyscore', key, '-inf', expiredTimestamp)

  if redis.call('zcard', key) < limit then
    redis.call('zadd', key, now, identifier)
    redis.call('pexpire', key, lockTimeout)
    return 1
  else
    return 0
  end",
};

/// The commands of Redisson's script for one permit, in words of our own: permits whose time has passed are given back, a
/// permit is taken off the number of those that are left, and its end is noted.
///
/// KEYS: the number of permits left, the ends of those taken, the channel. ARGV: the end of the lease, the client's time,
/// the token, the publishing command.
pub const REDISSON_PERMIT_ACQUIRE: Script = Script {
    source: "Redisson's RPermitExpirableSemaphore, tryAcquire, retold",
    text: "
        local left, ends, channel = KEYS[1], KEYS[2], KEYS[3]
        local passed = redis.call('zrangebyscore', ends, 0, ARGV[2], 'limit', 0, 1)
        if passed[1] then
            redis.call('zrem', ends, passed[1])
            local permits = redis.call('incrby', left, 1)
            if tonumber(permits) > 0 then
                redis.call(ARGV[4], channel, permits)
            end
        end
        local permits = redis.call('get', left)
        if not permits or tonumber(permits) < 1 then
            local first = redis.call('zrange', ends, 0, 0, 'withscores')
            return first[2] and ':' .. first[2] or false
        end
        redis.call('decrby', left, 1)
        redis.call('zadd', ends, ARGV[1], ARGV[3])
        local remaining = redis.call('pttl', left)
        if remaining > 0 then
            redis.call('pexpire', ends, remaining)
        end
        return 'OK'
    ",
};

/// As above, for the release.
///
/// KEYS: the number of permits left, the ends of those taken, the channel. ARGV: the token, the client's time, the
/// publishing command.
pub const REDISSON_PERMIT_RELEASE: Script = Script {
    source: "Redisson's RPermitExpirableSemaphore, tryRelease, retold",
    text: "
        local left, ends, channel = KEYS[1], KEYS[2], KEYS[3]
        local lease_end = redis.call('zscore', ends, ARGV[1])
        if redis.call('zrem', ends, ARGV[1]) == 0 then
            return 0
        end
        redis.call(ARGV[3], channel, redis.call('incrby', left, 1))
        return tonumber(lease_end) > tonumber(ARGV[2]) and 1 or 0
    ",
};
