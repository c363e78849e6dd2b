//! The slow log must have one entry for each wait that has ended and was long enough, with the reason.

use std::collections::{HashMap, HashSet};

use redis_lock::core::{EndReason, Kind, MAX_LOGGED_LEN, SlowWait};
use redis_lock::server::Tag;

use super::lock_model::{LockModel, QueueEntry, Waiting};
use super::spec::{Ms, Who};
use super::{Checker, Name, Verdict};
use crate::request::{Form, Verb, token_of};

/// The waits that have begun and whose entries were not checked yet.
#[derive(Default)]
pub(super) struct SlowLog {
    waits: HashMap<Tag, Wait>,
    min_wait_ms: Ms,
    /// Whether the running command has withdrawn waits. The module may count them for grants that it made before.
    pub withdraws: bool,
}

/// A wait.
struct Wait {
    name: Name,
    who: Who,
    since: Ms,
    /// The reason and the time of the end.
    end: Option<(EndReason, Ms)>,
    /// The number of requests that still wait. `None`: the number is uncertain.
    others: Option<usize>,
}

impl SlowLog {
    /// A request begins to wait.
    pub fn begin(&mut self, tag: Tag, name: Name, who: Who, now: Ms) {
        self.waits.insert(tag, Wait { name, who, since: now, end: None, others: None });
    }

    /// The wait of a request has ended. A later end of the same wait does not count.
    pub fn end(&mut self, tag: Tag, reason: EndReason, now: Ms) {
        if let Some(wait) = self.waits.get_mut(&tag) {
            wait.end.get_or_insert((reason, now));
        }
    }

    /// A message has ended the wait of a request. No client has received it if it is about a grant.
    pub fn end_by_message(&mut self, tag: Tag, event: &[u8], now: Ms) {
        let reason = match event {
            b"timeout" => EndReason::TimedOut,
            b"withdrawn" => EndReason::Withdrawn,
            b"replaced" => EndReason::Replaced,
            b"lost" => EndReason::Lost,
            _ => EndReason::Disconnected,
        };
        self.end(tag, reason, now);
    }

    /// The connection of a request has closed, or the server has ended its wait.
    pub fn disconnect(&mut self, tag: Tag, now: Ms) {
        self.end(tag, EndReason::Disconnected, now);
    }

    /// A later request has taken the place of a request. `others` requests wait besides these.
    pub fn replace(&mut self, tag: Tag, others: usize, now: Ms) {
        if let Some(wait) = self.waits.get_mut(&tag).filter(|wait| wait.end.is_none()) {
            (wait.end, wait.others) = (Some((EndReason::Replaced, now)), Some(others));
        }
    }

    /// A request was withdrawn by its token.
    pub fn withdraw(&mut self, tag: Tag, now: Ms) {
        self.withdraws = true;
        self.end(tag, EndReason::Withdrawn, now);
    }

    /// A request was granted the lock, and `others` requests still wait.
    pub fn grant(&mut self, tag: Tag, others: usize, now: Ms) {
        let others = Some(others).filter(|_| !self.withdraws);
        if let Some(wait) = self.waits.get_mut(&tag).filter(|wait| wait.end.is_none()) {
            (wait.end, wait.others) = (Some((EndReason::Granted, now)), others);
        }
    }

    pub fn clear(&mut self) {
        self.waits.clear();
    }
}

impl Wait {
    /// Returns whether this is the entry of the wait.
    fn is_logged_as(&self, entry: &SlowWait, (reason, now): (EndReason, Ms)) -> bool {
        let kind = match self.who.form {
            Form::Mutex => Kind::Mutex,
            Form::Reentrant => Kind::Reentrant,
            Form::Share => Kind::Shared,
        };
        let lock = (entry.db, &*entry.key) == (self.name.0, &*cut(&self.name.1));
        let waiter = (entry.kind, &*entry.owner) == (kind, &*cut(&self.who.name));
        let times = (entry.ended_at, entry.waited_ms) == (now, (now - self.since).max(0));
        let others = self.others.is_none_or(|others| entry.others == others);
        lock && waiter && times && others && entry.reason == reason
    }
}

/// Returns a name as the log shows it: a long name is cut.
fn cut(name: &[u8]) -> Vec<u8> {
    match name.len().checked_sub(MAX_LOGGED_LEN) {
        None | Some(0) => name.to_vec(),
        Some(more) => [&name[..MAX_LOGGED_LEN], format!("... ({more} more bytes)").as_bytes()].concat(),
    }
}

impl Checker {
    /// Sets the shortest wait that is logged.
    pub fn log_waits_from(&mut self, min_wait_ms: i64) {
        self.slow_log.min_wait_ms = min_wait_ms;
    }

    /// The module has ended the wait of a blocked client without a grant.
    pub(super) fn ended_by_module(&mut self, tag: Tag, now: Ms) {
        let find = |(name, model)| -> Option<(&Name, &LockModel, &QueueEntry)> {
            let model: &LockModel = model;
            Some((name, model, model.queue_entry_of(tag)?))
        };
        let Some((name, model, entry)) = self.models.iter().find_map(find) else { return };
        let running = self.running.as_mut().filter(|running| running.name == *name);
        match running.filter(|running| token_of(running.request.identity) == entry.who.name) {
            Some(running) if matches!(running.request.verb, Verb::Release { .. }) => {
                self.slow_log.end(tag, EndReason::Withdrawn, now);
            }
            Some(running) if running.may_wait() => {
                running.replaces = Some(tag);
                self.released.insert(tag, "REPLACED");
            }
            _ => {
                let others = model.still_waiting().saturating_sub(1);
                if let Some(wait) = self.slow_log.waits.get_mut(&tag).filter(|wait| wait.end.is_none()) {
                    (wait.end, wait.others) = (Some((EndReason::TimedOut, now)), Some(others));
                }
            }
        }
    }

    /// The waits of these requests have ended for a reason.
    pub(super) fn ended(&mut self, whom: impl Fn(&Waiting) -> bool, reason: EndReason, now: Ms) {
        let Self { models, slow_log, .. } = self;
        let ended = models.values().flat_map(LockModel::requests).filter(|request| whom(request));
        ended.for_each(|request| slow_log.end(request.tag, reason, now));
    }

    /// Checks the entries of the log since the last call, at the end of an iteration.
    ///
    /// # Errors
    ///
    /// An unexpected entry, or a missing one.
    pub fn check_slow_log(&mut self, mut entries: Vec<SlowWait>) -> Verdict {
        let requests = self.models.values().flat_map(LockModel::requests);
        let waiting: HashSet<Tag> =
            requests.filter(|request| !request.is_unblocked).map(|request| request.tag).collect();
        let min_wait_ms = self.slow_log.min_wait_ms;
        let ended = self.slow_log.waits.iter().filter(|(tag, _)| !waiting.contains(tag));
        let mut ended: Vec<_> = ended.map(|(tag, wait)| (wait.others.is_none(), *tag)).collect();
        // The entries of waits may differ only in the number of others. A wait whose number is uncertain takes a remaining entry.
        ended.sort_unstable();
        for (_, tag) in ended {
            let Some(wait) = self.slow_log.waits.remove(&tag) else { continue };
            let Some((reason, now)) = wait.end else {
                return Err(format!("request {tag} waits no more, for no reason"));
            };
            let index = entries.iter().position(|entry| wait.is_logged_as(entry, (reason, now)));
            match index {
                Some(index) if (now - wait.since).max(0) >= min_wait_ms => _ = entries.swap_remove(index),
                None if (now - wait.since).max(0) < min_wait_ms => {}
                _ => {
                    return Err(format!(
                        "the slow log is wrong about request {tag}, which was {reason:?} at {now} after a wait since {}: {entries:?}",
                        wait.since
                    ));
                }
            }
        }
        match entries.first() {
            Some(entry) => Err(format!("the slow log has an entry too many: {entry:?}")),
            None => Ok(()),
        }
    }
}
