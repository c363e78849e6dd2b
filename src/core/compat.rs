//! The names by which other lock libraries wake their waiters.

/// The prefix of the keys of locks in python-redis-lock. The name of the lock follows.
const PYTHON_KEY: &[u8] = b"lock:";

/// The prefix of the lists from which waiters of python-redis-lock pop a signal.
const PYTHON_SIGNAL: &[u8] = b"lock-signal:";

/// The prefix of the channels to which waiters of a Redisson `RLock` subscribe. The key of the lock follows.
const REDISSON_CHANNEL: &[u8] = b"redisson_lock__channel:";

/// Returns the list on which python-redis-lock signals that a lock is free, or `None` if the key is not one of its locks.
pub fn signal_list_of(key: &[u8]) -> Option<Vec<u8>> {
    key.strip_prefix(PYTHON_KEY).map(|name| [PYTHON_SIGNAL, name].concat())
}

/// Returns the channel on which Redisson publishes that a lock is free. The key is its hash tag, unless it may contain one.
pub fn redisson_channel_of(key: &[u8]) -> Vec<u8> {
    if key.contains(&b'{') { [REDISSON_CHANNEL, key].concat() } else { [REDISSON_CHANNEL, b"{", key, b"}"].concat() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_list_has_name_of_its_lock() {
        let list = |key: &[u8]| signal_list_of(key);
        assert_eq!(list(b"lock:door").unwrap(), b"lock-signal:door");
        assert_eq!(list(b"lock:").unwrap(), b"lock-signal:");
        assert_eq!(list(b"lock:lock:\0{x}").unwrap(), b"lock-signal:lock:\0{x}");
        assert!(
            [b"door".as_slice(), b"", b"lock", b"Lock:door", b"lock-signal:door"]
                .into_iter()
                .all(|key| list(key).is_none())
        );
    }

    #[test]
    fn channel_has_key_as_hash_tag() {
        assert_eq!(redisson_channel_of(b"door"), b"redisson_lock__channel:{door}");
        assert_eq!(redisson_channel_of(b"{house}:door"), b"redisson_lock__channel:{house}:door");
        assert_eq!(redisson_channel_of(b"a{b"), b"redisson_lock__channel:a{b");
        assert_eq!(redisson_channel_of(b"a}b"), b"redisson_lock__channel:{a}b}");
        assert_eq!(redisson_channel_of(b""), b"redisson_lock__channel:{}");
    }
}
