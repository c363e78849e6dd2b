//! One acquisition: its token, the commands that are sent for it, and its lease by the local clock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::redis::{Cmd, cmd};
use crate::scripts;

/// The longest time for which the server keeps the lock of a session whose connection is lost.
const MAX_GRACE: Duration = Duration::from_secs(1);

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) key: Vec<u8>,
    pub(crate) form: Form,
    pub(crate) lease: Duration,
    pub(crate) has_session: bool,
    pub(crate) is_renewed: bool,
}

/// The kind of a lock, which is the layout of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Mutex,
    Reentrant { owner: String },
    Share { limit: Option<u32> },
}

/// The lease by the local clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub(crate) end: Instant,
    pub(crate) length: Duration,
    /// The lock is lost, whatever the clock says.
    pub(crate) is_lost: bool,
}

/// A command with the script that stands in for it on a server without the module.
#[derive(Clone)]
pub(crate) struct Command {
    pub(crate) words: Cmd,
    pub(crate) script: Option<Cmd>,
    /// The name of the feature that needs the module, if it has no script.
    pub(crate) feature: &'static str,
}

/// One acquisition of a lock. Its token is random and never used again.
pub(crate) struct Claim {
    pub(crate) request: Request,
    pub(crate) token: String,
    pub(crate) term: watch::Sender<Term>,
    /// The number of requests whose outcome is unknown: the server may execute them after commands that are sent later.
    pub(crate) unanswered: AtomicU32,
    /// How many connections were lost before the session began.
    pub(crate) session_since: AtomicU64,
}

impl Claim {
    pub(crate) fn new(request: Request, token: String) -> Self {
        let term = Term { end: Instant::now() + request.lease, length: request.lease, is_lost: false };
        Self { request, token, term: watch::Sender::new(term), unanswered: 0.into(), session_since: u64::MAX.into() }
    }

    pub(crate) fn name(&self) -> String {
        String::from_utf8_lossy(&self.request.key).into_owned()
    }

    pub(crate) fn has_unanswered(&self) -> bool {
        self.unanswered.load(Ordering::SeqCst) > 0
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

    /// Reports that the lock is lost.
    pub(crate) fn lose(&self) {
        self.term.send_modify(|term| term.is_lost = true);
    }

    pub(crate) fn is_lost(&self) -> bool {
        let term = self.term.borrow();
        term.is_lost || Instant::now() >= term.end
    }

    /// Returns for how long the server keeps the lock when the connection of its session is lost.
    pub(crate) fn grace(&self) -> Duration {
        self.lease().min(MAX_GRACE)
    }

    /// Returns the request for the lock, which does not wait.
    pub(crate) fn take(&self) -> Command {
        let kind = if matches!(self.request.form, Form::Reentrant { .. }) { "hash" } else { "string" };
        let mut script = self.script(scripts::TAKE);
        script.arg(millis(self.lease())).arg(kind);
        let mut command = self.command(self.ask(), script);
        if self.request.has_session {
            (command.script, command.feature) = (None, "a session");
        }
        command
    }

    /// Returns the request that waits, and whose wait ends with a message on the channel.
    pub(crate) fn wait(&self, time: Duration, channel: &[u8]) -> Cmd {
        let mut words = self.ask();
        words.arg("BLOCK").arg(millis(time)).arg("NOTIFY").arg(channel);
        words
    }

    fn ask(&self) -> Cmd {
        let (name, option) = match self.request.form {
            Form::Mutex => ("LOCK.ACQUIRE", None),
            // The guards of an owner are counted by this package, so that no request counts twice.
            Form::Reentrant { .. } => ("LOCK.REENTER", Some(("HOLD", 1))),
            Form::Share { limit } => ("LOCK.SHARE", limit.map(|limit| ("LIMIT", limit))),
        };
        let mut words = self.words(name);
        words.arg("PX").arg(millis(self.lease())).arg(option);
        if self.request.has_session {
            words.arg("SESSION").arg("GRACE").arg(millis(self.grace()));
        }
        words
    }

    pub(crate) fn release(&self) -> Command {
        self.command(self.words("LOCK.RELEASE"), self.script(scripts::RELEASE))
    }

    pub(crate) fn extend(&self, lease: Duration) -> Command {
        let (mut words, mut script) = (self.words("LOCK.EXTEND"), self.script(scripts::EXTEND));
        words.arg("PX").arg(millis(lease));
        script.arg(millis(lease));
        self.command(words, script)
    }

    /// Returns the command for a fencing token. Its counter is a key in the slot of the lock.
    pub(crate) fn fence(&self) -> Command {
        let key = self.request.key.as_slice();
        let has_tag = hash_tag(key) != key;
        let mut words = self.words("LOCK.FENCE");
        words.arg(if has_tag { [key, b":fence"].concat() } else { [b"{", key, b"}:fence"].concat() });
        Command { words, script: None, feature: "a fencing token" }
    }

    /// Returns a read of the key that shows whether the token holds the lock. It works without the module, too.
    pub(crate) fn read(&self) -> Cmd {
        let (name, member) = match self.request.form {
            Form::Mutex => ("GET", None),
            Form::Reentrant { .. } => ("HGET", Some(&self.token)),
            Form::Share { .. } => ("ZSCORE", Some(&self.token)),
        };
        let mut words = cmd(name);
        words.arg(&self.request.key).arg(member);
        words
    }

    fn words(&self, name: &str) -> Cmd {
        let mut words = cmd(name);
        words.arg(&self.request.key).arg(&self.token);
        words
    }

    fn script(&self, text: &str) -> Cmd {
        let mut words = cmd("EVAL");
        words.arg(text).arg(1).arg(&self.request.key).arg(&self.token);
        words
    }

    fn command(&self, words: Cmd, script: Cmd) -> Command {
        let is_share = matches!(self.request.form, Form::Share { .. });
        Command { words, script: (!is_share).then_some(script), feature: "a share" }
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

/// Returns milliseconds for the server, at least 1.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::hash_tag;

    #[test]
    fn tag_is_the_text_between_the_first_braces() {
        for (key, tag) in [("door", "door"), ("{a}xa", "a"), ("x{a}{b}", "a"), ("{}a", "{}a"), ("{a", "{a"), ("", "")] {
            assert_eq!(hash_tag(key.as_bytes()), tag.as_bytes(), "{key}");
        }
    }
}
