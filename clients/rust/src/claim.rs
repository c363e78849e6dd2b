//! One acquisition: its token, the commands that are sent for it, and its lease by the local clock.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::core::MAX_BLOCK;
use crate::redis::{Cmd, cmd};
use crate::scripts::SCRIPT;

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

impl Request {
    pub(crate) fn name(&self) -> String {
        String::from_utf8_lossy(&self.key).into_owned()
    }

    pub(crate) fn check_lease(&self, lease: Duration) -> Result<(), Error> {
        let min = if self.has_session { MIN_SESSION } else { MIN_LEASE };
        if (min..=FOREVER).contains(&lease) {
            return Ok(());
        }
        let reason = "a lease has 1 millisecond, or 100 milliseconds with a session, to 100 years";
        Err(Error::Argument(self.name(), reason))
    }
}

/// The lease by the local clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub(crate) end: Instant,
    pub(crate) length: Duration,
}

/// A command, and what stands in for it on a server without the module.
pub(crate) struct Command {
    pub(crate) words: Cmd,
    /// The script, or the name of the feature that needs the module.
    pub(crate) script: Result<Cmd, &'static str>,
}

/// One acquisition of a lock. Its token is random and never used again.
pub(crate) struct Claim {
    pub(crate) request: Request,
    pub(crate) token: String,
    pub(crate) term: watch::Sender<Term>,
    /// Is cancelled when the lock is lost.
    pub(crate) loss: CancellationToken,
    /// The number of requests whose outcome is unknown: the server may execute them after commands that are sent later.
    pub(crate) unanswered: AtomicU32,
    /// How many connections were lost before the session began.
    pub(crate) session_since: AtomicU64,
    /// The end of the hold releases the lock, or withdraws the request.
    pub(crate) is_armed: AtomicBool,
}

impl Claim {
    pub(crate) fn new(request: Request, token: String) -> Self {
        let term = Term { end: Instant::now() + request.lease, length: request.lease };
        Self {
            request,
            token,
            term: watch::Sender::new(term),
            loss: CancellationToken::new(),
            unanswered: 0.into(),
            session_since: u64::MAX.into(),
            is_armed: false.into(),
        }
    }

    /// Returns the length of the lease.
    pub(crate) fn lease(&self) -> Duration {
        self.term.borrow().length
    }

    /// Notes that the lease had a length at an instant.
    pub(crate) fn set_lease(&self, at: Instant, length: Duration) {
        self.term.send_modify(|term| (term.end, term.length) = (at + length, length));
    }

    /// Notes that the lease, which keeps its length, may end in a while.
    pub(crate) fn limit_lease(&self, left: Duration) {
        self.term.send_modify(|term| term.end = term.end.min(Instant::now() + left));
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.loss.is_cancelled() || Instant::now() >= self.term.borrow().end
    }

    /// Waits until the lease has ended.
    pub(crate) async fn ended(&self) {
        let mut term = self.term.subscribe();
        while !self.is_lost() {
            let end = term.borrow_and_update().end;
            let _ = timeout_at(end, term.changed()).await;
        }
    }

    /// Returns the request for the lock, which may wait for a time that ends with a message on a channel.
    pub(crate) fn ask(&self, wait: Option<(Duration, &[u8])>) -> Command {
        let (name, kind, option) = match self.request.form {
            Form::Mutex => ("LOCK.ACQUIRE", "string", None),
            // The guards of an owner are counted by this package, so that no request counts twice.
            Form::Reentrant(_) => ("LOCK.REENTER", "hash", Some(("HOLD", 1))),
            Form::Share(limit) => ("LOCK.SHARE", "zset", limit.map(|limit| ("LIMIT", limit))),
        };
        let mut command = self.command(name, kind, self.lease());
        command.words.arg("PX").arg(millis(self.lease())).arg(option);
        if let Some((time, channel)) = wait {
            command.words.arg("BLOCK").arg(millis(time.min(MAX_BLOCK))).arg("NOTIFY").arg(channel);
            command.words.arg(self.request.max_waiters.map(|most| ("MAXWAITERS", most)));
        }
        if self.request.has_session {
            command.words.arg("SESSION").arg("GRACE").arg(millis(self.lease().min(GRACE)));
            command.script = Err("a session");
        }
        command
    }

    pub(crate) fn release(&self) -> Command {
        self.command("LOCK.RELEASE", "release", self.lease())
    }

    pub(crate) fn extend(&self, lease: Duration) -> Command {
        let mut command = self.command("LOCK.EXTEND", "extend", lease);
        command.words.arg("PX").arg(millis(lease));
        command
    }

    /// Returns the command for a fencing token.
    pub(crate) fn fence(&self, in_cluster: bool) -> Result<Command, Error> {
        let reason = "no name of a counter is in the slot of this name";
        let counter = counter_of(&self.request.key, in_cluster);
        let counter = counter.ok_or_else(|| Error::Argument(self.request.name(), reason))?;
        let mut command = self.command("LOCK.FENCE", "", self.lease());
        command.words.arg(counter);
        Ok(Command { script: Err("a fencing token"), ..command })
    }

    /// Returns a read of the key that shows whether the token holds the lock. It works without the module, too.
    pub(crate) fn read(&self) -> Cmd {
        let (name, member) = match self.request.form {
            Form::Mutex => ("GET", None),
            Form::Reentrant(_) => ("HGET", Some(&self.token)),
            Form::Share(_) => ("ZSCORE", Some(&self.token)),
        };
        cmd(name).arg(&self.request.key).arg(member).take()
    }

    /// Returns the start of a command, and the script for its action.
    fn command(&self, name: &str, action: &str, lease: Duration) -> Command {
        let (key, token) = (&self.request.key, &self.token);
        let words = cmd(name).arg(key).arg(token).take();
        let script = cmd("EVAL").arg(SCRIPT).arg(1).arg(key).arg(token).arg(millis(lease)).arg(action).take();
        let is_share = matches!(self.request.form, Form::Share(_));
        Command { words, script: if is_share { Err("a share") } else { Ok(script) } }
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
