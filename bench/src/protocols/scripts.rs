//! The Lua scripts that client libraries lock with, word for word as published: they are what is measured.

/// A script and where it comes from.
pub struct Script {
    pub source: &'static str,
    pub text: &'static str,
}

impl Script {
    /// What EVALSHA calls it by.
    pub fn sha1(&self) -> String {
        redis::Script::new(self.text).get_hash().to_owned()
    }
}

/// KEYS: the lock. ARGV: the token.
pub const REDIS_PY_RELEASE: Script = Script {
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

/// KEYS: the lock, the list of its signals. ARGV: the token, lease of a signal in ms.
pub const PYTHON_REDIS_LOCK_UNLOCK: Script = Script {
    source: "python-redis-lock 4.0.1, redis_lock/__init__.py, UNLOCK_SCRIPT",
    text: r#"
    if redis.call("get", KEYS[1]) ~= ARGV[1] then
        return 1
    else
        redis.call("del", KEYS[2])
        redis.call("lpush", KEYS[2], 1)
        redis.call("pexpire", KEYS[2], ARGV[2])
        redis.call("del", KEYS[1])
        return 0
    end
"#,
};

/// KEYS: the lock. ARGV: lease in ms, owner.
pub const REDISSON_LOCK: Script = Script {
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
pub const REDISSON_UNLOCK: Script = Script {
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
