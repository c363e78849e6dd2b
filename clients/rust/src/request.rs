//! What a lock is asked for, and the commands for it.

use std::time::Duration;

use crate::Error;
use crate::core::MAX_BLOCK;
use crate::scripts::SCRIPT;
use crate::server::Words;

/// The longest time for which the server keeps the lock of a session whose connection is lost.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// The shortest lease.
pub(crate) const MIN_LEASE: Duration = Duration::from_millis(1);
/// The shortest lease of a session.
pub(crate) const MIN_SESSION: Duration = Duration::from_millis(100);
/// The longest lease, which the server accepts with any clock. It stands for no limit, too.
pub(crate) const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The description of a lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) key: Vec<u8>,
    pub(crate) form: Form,
    pub(crate) lease: Duration,
    pub(crate) has_session: bool,
    pub(crate) is_renewed: bool,
    /// How many may wait before it.
    pub(crate) max_waiters: Option<u32>,
}

/// The kind of a lock, which is the layout of its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    #[default]
    Mutex,
    /// With its owner.
    Reentrant(String),
    /// With the number of permits.
    Share(Option<u32>),
}

/// A command, and what stands in for it on a server without the module.
pub(crate) struct Command {
    pub(crate) words: Words,
    /// The lease and the action of the script, or the name of the feature that needs the module.
    pub(crate) script: Result<(Duration, &'static str), &'static str>,
}

impl Request {
    pub(crate) fn name(&self) -> String {
        String::from_utf8_lossy(&self.key).into_owned()
    }

    /// Returns whether EXTEND is sent when it is time. In a session it is not as long as the server reports renewals.
    pub(crate) fn is_extended(&self) -> bool {
        self.is_renewed || self.has_session
    }

    /// Returns whether each report of a change is one of a renewal by the server. Other shares change the key of a share, too.
    pub(crate) fn has_reports(&self) -> bool {
        self.has_session && !matches!(self.form, Form::Share(_))
    }

    pub(crate) fn is_reentrant(&self) -> bool {
        matches!(self.form, Form::Reentrant(_))
    }

    pub(crate) fn check_lease(&self, lease: Duration) -> Result<(), Error> {
        let min = if self.has_session { MIN_SESSION } else { MIN_LEASE };
        if (min..=FOREVER).contains(&lease) {
            return Ok(());
        }
        let reason = "a lease has 1 millisecond, or 100 milliseconds with a session, to 100 years";
        Err(Error::Argument(self.name(), reason))
    }

    /// Returns the request for the lock, which may wait for a time that ends with a message on a channel.
    pub(crate) fn acquire(&self, token: &str, lease: Duration, wait: Option<(Duration, &[u8])>) -> Command {
        let (name, kind, option) = match self.form {
            Form::Mutex => ("LOCK.ACQUIRE", "string", None),
            // The guards of an owner are counted by this package, so that no request counts twice.
            Form::Reentrant(_) => ("LOCK.REENTER", "hash", Some(("HOLD", 1))),
            Form::Share(limit) => ("LOCK.SHARE", "zset", limit.map(|limit| ("LIMIT", limit))),
        };
        let Command { mut words, mut script } = self.command(name, token, lease, kind);
        words = words.number("PX", millis(lease));
        if let Some((option, number)) = option {
            words = words.number(option, number.into());
        }
        if let Some((time, channel)) = wait {
            words = words.number("BLOCK", millis(time.min(MAX_BLOCK))).word("NOTIFY").word(channel);
            if let Some(most) = self.max_waiters {
                words = words.number("MAXWAITERS", most.into());
            }
        }
        if self.has_session {
            words = words.word("SESSION").number("GRACE", millis(lease.min(GRACE)));
            script = Err("a session");
        }
        Command { words, script }
    }

    pub(crate) fn release(&self, token: &str) -> Command {
        self.command("LOCK.RELEASE", token, Duration::ZERO, "release")
    }

    pub(crate) fn extend(&self, token: &str, lease: Duration) -> Command {
        let Command { words, script } = self.command("LOCK.EXTEND", token, lease, "extend");
        Command { words: words.number("PX", millis(lease)), script }
    }

    /// Returns the command for a fencing token.
    pub(crate) fn fence(&self, token: &str, in_cluster: bool) -> Result<Command, Error> {
        let reason = "no name of a counter is in the slot of this name";
        let counter = counter_of(&self.key, in_cluster).ok_or_else(|| Error::Argument(self.name(), reason))?;
        let command = self.command("LOCK.FENCE", token, Duration::ZERO, "");
        Ok(Command { words: command.words.word(counter), script: Err("a fencing token") })
    }

    /// Returns the command of a script.
    pub(crate) fn script(&self, token: &str, lease: Duration, action: &str) -> Words {
        let words = Words::new("EVAL").word(SCRIPT).word("1").word(&self.key).word(token);
        words.word(millis(lease).to_string()).word(action)
    }

    fn command(&self, name: &str, token: &str, lease: Duration, action: &'static str) -> Command {
        let words = Words::new(name).word(&self.key).word(token);
        let is_share = matches!(self.form, Form::Share(_));
        Command { words, script: if is_share { Err("a share") } else { Ok((lease, action)) } }
    }
}

/// Returns the part of a key that chooses its slot: the text between the first braces, otherwise all of it.
pub(crate) fn hash_tag(key: &[u8]) -> &[u8] {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|byte| *byte == b'}').map(|close| &rest[..close])
    });
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// Returns the start of the channels of a slot in a cluster, none if no name with the hash tag of the key is possible.
#[cfg(any(test, feature = "cluster"))]
pub(crate) fn channel_prefix(key: &[u8]) -> Option<Vec<u8>> {
    let tag = hash_tag(key);
    (!tag.contains(&b'}')).then(|| [b"redis-lock:{", tag, b"}:"].concat())
}

/// Returns the counter of the fencing tokens of a lock, none if in a cluster no name is in its slot.
pub(crate) fn counter_of(key: &[u8], in_cluster: bool) -> Option<Vec<u8>> {
    match hash_tag(key) != key {
        false if !key.iter().any(|byte| b"{}".contains(byte)) => Some([b"{", key, b"}:fence"].concat()),
        has_tag => (has_tag || !in_cluster).then(|| [key, b":fence"].concat()),
    }
}

/// Returns milliseconds for the server, rounded up: no lease ends there before it does here.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{hash_tag, millis};

    #[test]
    fn tag_is_the_text_between_the_first_braces() {
        for (key, tag) in [("door", "door"), ("{a}xa", "a"), ("x{a}{b}", "a"), ("{}a", "{}a"), ("{a", "{a"), ("", "")] {
            assert_eq!(hash_tag(key.as_bytes()), tag.as_bytes(), "{key}");
        }
    }

    #[test]
    fn lease_of_the_server_is_not_shorter() {
        for (micros, expected) in [(1, 1), (1000, 1), (1001, 2), (1999, 2), (30_000_000, 30_000)] {
            assert_eq!(millis(Duration::from_micros(micros)), expected);
        }
    }
}
