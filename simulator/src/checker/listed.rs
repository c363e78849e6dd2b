//! The required reply of LOCK.QUEUES.

use std::collections::{BTreeMap, HashSet};

use redis_lock::server::Reply;

use super::Name;
use super::lock_model::{LockModel, Waiting};
use super::shown::map;
use super::spec::Ms;
use crate::request::Verb;

/// The locks with waiters in one database, of which up to `count` must be listed.
pub(super) struct Listed {
    locks: Vec<Queue>,
    count: usize,
}

/// A lock with waiters.
struct Queue {
    key: Vec<u8>,
    waiters: i64,
    longest: Ms,
}

impl Listed {
    pub fn of(models: &BTreeMap<Name, LockModel>, db: i32, verb: &Verb, now: Ms) -> Self {
        let queues = models.iter().filter(|((own_db, _), _)| *own_db == db);
        let locks = queues.filter_map(|((_, key), model)| Queue::of(key, model, now)).collect();
        let count = if let Verb::Queues { count: Some(count) } = verb { usize::from(*count) } else { 10 };
        Self { locks, count }
    }

    /// Returns whether the reply lists the locks, the longest queues first. The tests of the core check the order of
    /// queues of the same length.
    pub fn is(&self, reply: &Reply) -> bool {
        let Reply::Array(items) = reply else { return false };
        let listed: Vec<_> =
            items.iter().filter_map(|item| self.locks.iter().find(|lock| lock.is_shown_by(item))).collect();
        let keys: HashSet<_> = listed.iter().map(|lock| &lock.key).collect();
        let shortest = listed.iter().map(|lock| lock.waiters).min().unwrap_or_default();
        let is_left_out = |lock: &&Queue| !keys.contains(&lock.key);
        listed.len() == items.len()
            && keys.len() == self.count.min(self.locks.len())
            && listed.is_sorted_by(|one, next| one.waiters >= next.waiters)
            && self.locks.iter().filter(is_left_out).all(|lock| lock.waiters <= shortest)
    }
}

impl Queue {
    /// Returns `None` if there is no waiter.
    fn of(key: &[u8], model: &LockModel, now: Ms) -> Option<Self> {
        let waits = |request: &&Waiting| !request.is_unblocked;
        let first = model.queue.iter().find(|entry| entry.request.as_ref().is_some_and(|request| waits(&request)))?;
        Some(Self {
            key: key.to_vec(),
            waiters: model.requests().filter(waits).count() as i64,
            longest: (now - first.since).max(0),
        })
    }

    fn is_shown_by(&self, item: &Reply) -> bool {
        let (key, waiters) = (Reply::Bytes(self.key.clone()), Reply::Integer(self.waiters));
        let longest = Reply::Integer(self.longest);
        *item == map([("key", key), ("waiters", waiters), ("longest-wait-ms", longest)])
    }
}
