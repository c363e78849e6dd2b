//! Waiters of other lock libraries. Each lock has a permanent waiter of python-redis-lock and one of Redisson. The
//! module wakes them in the step in which it leaves the lock free, and at no other time.

use redis_lock::server::{Entry, LoggedEvent, Value, Writer, slot_of};

use super::{Checker, Name, Verdict};
use crate::checker::spec::Ms;

/// How long a signal is kept.
const SIGNAL_MS: Ms = 1000;

/// What the module does for the waiters of other libraries.
#[derive(Default)]
pub(super) struct Compat {
    /// Whether `lock.wake-foreign` is set.
    pub is_on: bool,
    /// The lock that the module has just left free.
    freed: Option<FreedLock>,
}

/// A lock that was left free, and what the module has done for other libraries since.
struct FreedLock {
    name: Name,
    form: Form,
    /// The signal list, if it was written.
    signal: Option<Option<Entry>>,
    /// The commands by which a message was published.
    published: Vec<&'static str>,
    /// Whether the server may refuse a part of that, because the slot is leaving the node.
    may_fail: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Mutex,
    Reentrant,
}

impl Compat {
    /// Another process is the master.
    pub fn start_over(&mut self) {
        self.freed = None;
    }
}

impl Checker {
    /// The module has changed a key, which had the value `previous`.
    pub(super) fn note_freed(&mut self, name: &Name, previous: Option<&Entry>) {
        let form = match previous.map(|entry| &entry.value) {
            Some(Value::String(_)) => Form::Mutex,
            Some(Value::Hash(_)) => Form::Reentrant,
            _ => return,
        };
        if self.compat.is_on && self.model(name).entry.is_none() {
            let may_fail = self.lost_slots.contains(&slot_of(&name.1));
            self.compat.freed =
                Some(FreedLock { name: name.clone(), form, signal: None, published: Vec::new(), may_fail });
        }
    }

    /// Follows what the module does for other libraries. Any other event ends that.
    pub(super) fn check_compat(&mut self, note: &LoggedEvent, now: Ms) -> Verdict {
        match note {
            LoggedEvent::Wrote { db, key, entry, writer: Writer::Command } if key.starts_with(b"lock-signal:") => {
                let lock = [b"lock:", key.strip_prefix(b"lock-signal:").unwrap_or_default()].concat();
                self.signalled((*db, lock.into()), entry)
            }
            LoggedEvent::Announced { command, channel, message } => {
                let lock = channel.strip_prefix(b"redisson_lock__channel:{").and_then(|rest| rest.strip_suffix(b"}"));
                match lock.filter(|_| **message == *b"0") {
                    Some(lock) => self.notified_others(lock, command),
                    None => Err(format!("no client listens for {message:?} on {}", channel.escape_ascii())),
                }
            }
            LoggedEvent::Wrote { writer: Writer::Expiry, .. } => Ok(()),
            _ => self.check_freed(now),
        }
    }

    fn signalled(&mut self, name: Name, entry: &Option<Entry>) -> Verdict {
        match &mut self.compat.freed {
            Some(freed) if freed.name == name && freed.form == Form::Mutex => freed.signal = Some(entry.clone()),
            Some(freed) if freed.name == name => return Err(disturbed(&name.1)),
            _ => return self.check_ended(&name),
        }
        Ok(())
    }

    fn notified_others(&mut self, lock: &[u8], command: &'static str) -> Verdict {
        match &mut self.compat.freed {
            Some(freed) if *freed.name.1 == *lock && freed.form == Form::Reentrant => freed.published.push(command),
            _ => {
                let free = |(name, model): (&Name, &super::LockModel)| *name.1 == *lock && model.entry.is_none();
                let may_have_ended = self.in_timer && self.models.iter().any(free);
                return if may_have_ended { Ok(()) } else { Err(disturbed(lock)) };
            }
        }
        Ok(())
    }

    /// Waiters of other libraries are woken, and the module has not left the lock free. This is correct if the lease
    /// has ended and the waiters of the module have withdrawn.
    fn check_ended(&mut self, name: &Name) -> Verdict {
        let may_have_ended = self.in_timer && self.compat.is_on && self.model(name).entry.is_none();
        if may_have_ended { Ok(()) } else { Err(disturbed(&name.1)) }
    }

    /// Checks that the waiters of other libraries were woken for a lock that was left free.
    fn check_freed(&mut self, now: Ms) -> Verdict {
        let Some(freed) = self.compat.freed.take().filter(|freed| !freed.may_fail) else { return Ok(()) };
        let signal = Entry { value: Value::Other(1), expiry: Some(now + SIGNAL_MS) };
        let is_woken = match freed.form {
            Form::Mutex if freed.name.1.starts_with(b"lock:") => freed.signal == Some(Some(signal)),
            Form::Mutex => freed.signal.is_none(),
            Form::Reentrant => freed.published == ["SPUBLISH", "PUBLISH"],
        };
        if is_woken {
            return Ok(());
        }
        let (lock, signal, published) = (freed.name.1.escape_ascii(), freed.signal, freed.published);
        Err(format!("{lock} is left free, and others are not woken: {signal:?}, {published:?}"))
    }
}

fn disturbed(lock: &[u8]) -> String {
    format!("others are woken for {}, which was not left free", lock.escape_ascii())
}
