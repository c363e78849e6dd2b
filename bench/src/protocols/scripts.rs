//! Lua scripts of client libraries, as published. Command lines call them by `{name}`, which stands for their SHA1.

use support::{Client, Reply};

pub struct Script {
    /// In command lines.
    name: &'static str,
    pub source: &'static str,
    text: &'static str,
}

pub const SCRIPTS: [Script; 4] = [REDIS_PY_RELEASE, REDISSON_LOCK, REDISSON_UNLOCK, REDIS_SEMAPHORE_ACQUIRE];

/// Replaces the names of scripts.
pub fn filled(line: &str) -> String {
    SCRIPTS.iter().fold(line.to_owned(), |line, script| {
        if line.contains(script.name) { line.replace(script.name, &script.sha1()) } else { line }
    })
}

/// Loads all scripts into a server, as the libraries do.
pub fn load(client: &mut Client) {
    for script in &SCRIPTS {
        assert_eq!(client.call(&["SCRIPT", "LOAD", script.text]), Reply::text(&script.sha1()), "{}", script.source);
    }
}

impl Script {
    fn sha1(&self) -> String {
        redis::Script::new(self.text).get_hash().to_owned()
    }
}

/// KEYS: the lock. ARGV: the token.
const REDIS_PY_RELEASE: Script = Script {
    name: "{redis-py-release}",
    source: "redis-py 8.1.0, redis/lock.py, LUA_RELEASE_SCRIPT",
    text: "
        local token = redis.call('get', KEYS[1])
        if not token or token ~= ARGV[1] then
            return 0
        end
        redis.call('del', KEYS[1])
        return 1
    ",
};

/// KEYS: the lock. ARGV: lease in ms, owner.
const REDISSON_LOCK: Script = Script {
    name: "{redisson-lock}",
    source: "Redisson 4.7.0, RedissonLock.java, tryLockInnerAsync",
    text: "if ((redis.call('exists', KEYS[1]) == 0) \
        or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then \
        redis.call('hincrby', KEYS[1], ARGV[2], 1); \
        redis.call('pexpire', KEYS[1], ARGV[1]); \
        return nil; \
        end; \
        return redis.call('pttl', KEYS[1]);",
};

/// KEYS: the lock, its channel, the latch of this request. ARGV: the message, lease in ms, owner, the publishing command,
/// lease of the latch in ms.
const REDISSON_UNLOCK: Script = Script {
    name: "{redisson-unlock}",
    source: "Redisson 4.7.0, RedissonLock.java, unlockInnerAsync",
    text: "local val = redis.call('get', KEYS[3]); \
        if val ~= false then \
        return tonumber(val);\
        end; \
        if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then \
        return nil;\
        end; \
        local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); \
        if (counter > 0) then \
        redis.call('pexpire', KEYS[1], ARGV[2]); \
        redis.call('set', KEYS[3], 0, 'px', ARGV[5]); \
        return 0; \
        else \
        redis.call('del', KEYS[1]); \
        redis.call(ARGV[4], KEYS[2], ARGV[1]); \
        redis.call('set', KEYS[3], 1, 'px', ARGV[5]); \
        return 1; \
        end; ",
};

/// KEYS: the semaphore. ARGV: the number of permits, the token, lease in ms, the client's time.
const REDIS_SEMAPHORE_ACQUIRE: Script = Script {
    name: "{redis-semaphore-acquire}",
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
