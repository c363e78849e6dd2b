//! The naive model: one list of queue entries for each lock, searched from the front.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{GRACE_MS, KEYS};
use crate::core::{Kind, UnixMs};

/// A request for a lock, or for a share of it.
#[derive(Clone, Copy, Debug)]
pub struct Take {
    pub kind: Kind,
    pub key: u8,
    pub who: u8,
    pub lease_ms: Option<i64>,
    pub block_ms: Option<i64>,
    /// Only a share has a limit.
    pub limit: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Granted,
    Nil,
    /// The caller holds the lock in the other form.
    Refused,
    /// The client has disconnected and gets no reply.
    Withdrew,
}

/// The holders of each lock: one that holds it alone, or shares.
pub type Holders = BTreeMap<u8, Vec<ModelHolder>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelHolder {
    pub who: u8,
    pub is_share: bool,
    pub is_reentrant: bool,
    pub holds: i64,
    pub end: Option<UnixMs>,
}

/// The naive model: for each key, the holders and the list of queue entries.
#[derive(Default)]
pub struct Model {
    pub holders: Holders,
    pub queue: BTreeMap<u8, Vec<ModelEntry>>,
    pub answers: BTreeMap<u64, Answer>,
    pub turns: usize,
}

pub struct ModelEntry {
    pub take: Take,
    /// The number of the entry among all entries, and the time when its wait began.
    pub turn: usize,
    pub since: UnixMs,
    /// The connection, the deadline and the arguments of each request.
    pub requests: Vec<(u64, Option<UnixMs>, Take)>,
    /// The time when the entry is dropped while it is detached.
    pub kept_until: UnixMs,
}

impl ModelEntry {
    pub fn is_attached(&self) -> bool {
        !self.requests.is_empty()
    }

    /// The merged arguments of the requests: the longest lease, where no lease is the longest, and the smallest limit.
    pub fn wanted(&self) -> Take {
        let takes = || self.requests.iter().map(|(_, _, take)| take);
        let leases: Option<Vec<_>> = takes().map(|take| take.lease_ms).collect();
        let lease_ms = leases.and_then(|leases| leases.into_iter().max());
        Take { lease_ms, limit: takes().filter_map(|take| take.limit).min(), ..self.take }
    }

    pub fn is_of(&self, take: &Take) -> bool {
        self.take.kind == take.kind && self.take.who == take.who
    }
}

impl ModelHolder {
    pub fn new(take: &Take, now: UnixMs) -> Self {
        let (is_share, is_reentrant) = (take.kind == Kind::Shared, take.kind == Kind::Reentrant);
        Self { who: take.who, is_share, is_reentrant, holds: 1, end: take.lease_ms.map(|ms| now + ms) }
    }

    pub fn has_kind(&self, kind: Kind) -> bool {
        self.is_share == (kind == Kind::Shared) && self.is_reentrant == (kind == Kind::Reentrant)
    }
}

/// Returns whether there is capacity for one more holder.
pub fn has_capacity(holders: &[ModelHolder], take: &Take) -> bool {
    let shares = take.kind == Kind::Shared && holders.iter().all(|holder| holder.is_share);
    holders.is_empty() || shares && take.limit.is_none_or(|limit| holders.len() < limit)
}

impl Model {
    pub fn take(&mut self, waiter: u64, now: UnixMs, take: &Take) {
        let holders = self.holders.entry(take.key).or_default();
        let is_queued = self.queue.get(&take.key).is_some_and(|queue| queue.iter().any(ModelEntry::is_attached));
        let has_capacity = has_capacity(holders, take) && !is_queued;
        let answer = match holders.iter_mut().find(|holder| holder.who == take.who) {
            Some(own) if own.has_kind(take.kind) => {
                own.holds += i64::from(own.is_reentrant);
                own.end = own.end.map(|end| end.max(take.lease_ms.map_or(end, |ms| now + ms)));
                Answer::Granted
            }
            Some(own) if own.is_share != (take.kind == Kind::Shared) => Answer::Refused,
            None if has_capacity => {
                self.grant(take, now);
                self.forget(take.key, |entry| entry.is_of(take));
                Answer::Granted
            }
            _ => match take.block_ms {
                None => Answer::Nil,
                Some(ms) => return self.wait(waiter, now, (ms > 0).then(|| now + ms), take),
            },
        };
        self.answers.insert(waiter, answer);
    }

    pub fn grant(&mut self, take: &Take, now: UnixMs) {
        self.holders.entry(take.key).or_default().push(ModelHolder::new(take, now));
        self.forget(take.key, |entry| entry.take.who == take.who && entry.take.kind != take.kind);
    }

    pub fn wait(&mut self, waiter: u64, now: UnixMs, deadline: Option<UnixMs>, take: &Take) {
        self.turns += 1;
        let queue = self.queue.entry(take.key).or_default();
        let Some(entry) = queue.iter_mut().find(|entry| entry.is_of(take)) else {
            let (turn, requests) = (self.turns, vec![(waiter, deadline, *take)]);
            return queue.push(ModelEntry { take: *take, turn, since: now, requests, kept_until: 0 });
        };
        entry.requests.push((waiter, deadline, *take));
    }

    pub fn forget(&mut self, key: u8, which: impl Fn(&ModelEntry) -> bool) {
        let queue = self.queue.entry(key).or_default();
        for (waiter, ..) in queue.iter().filter(|entry| which(entry)).flat_map(|entry| &entry.requests) {
            self.answers.insert(*waiter, Answer::Nil);
        }
        queue.retain(|entry| !which(entry));
    }

    pub fn release(&mut self, key: u8, who: u8, now: UnixMs) {
        let holders = self.holders.entry(key).or_default();
        let own = holders.iter_mut().find(|holder| holder.who == who);
        if let Some(own) = own.filter(|own| own.holds > 1) {
            own.holds -= 1;
            return;
        }
        holders.retain(|holder| holder.who != who);
        self.forget(key, |entry| entry.take.who == who);
        self.serve(key, now);
    }

    pub fn delete(&mut self, key: u8, now: UnixMs) {
        self.holders.remove(&key);
        self.serve(key, now);
    }

    /// Grants the lock to the first waiters while there is capacity.
    pub fn serve(&mut self, key: u8, now: UnixMs) {
        loop {
            let queue = self.queue.entry(key).or_default();
            let Some(first) = queue.iter().position(ModelEntry::is_attached) else { return };
            if !has_capacity(self.holders.entry(key).or_default(), &queue[first].wanted()) {
                return;
            }
            let entry = queue.remove(first);
            self.answers.extend(entry.requests.iter().map(|(waiter, ..)| (*waiter, Answer::Granted)));
            self.grant(&entry.wanted(), now);
        }
    }

    pub fn withdraw_request(&mut self, waiter: u64, now: UnixMs, answer: Answer) {
        for entry in self.queue.values_mut().flatten().filter(|entry| entry.is_attached()) {
            entry.requests.retain(|(other, ..)| *other != waiter);
            entry.kept_until = now + GRACE_MS;
        }
        self.answers.insert(waiter, answer);
        (0..KEYS).for_each(|key| self.serve(key, now));
    }

    /// Advances to `now`, at most one millisecond. Leases end first, then the waits in `timed_out`, in this order.
    pub fn tick(&mut self, now: UnixMs, timed_out: &[u64]) {
        for holders in self.holders.values_mut() {
            holders.retain(|holder| holder.end.is_none_or(|end| now <= end));
        }
        (0..KEYS).for_each(|key| self.serve(key, now));
        for waiter in timed_out {
            assert!(self.late(now).contains(waiter), "{waiter} timed out before its deadline");
            self.withdraw_request(*waiter, now, Answer::Nil);
        }
        assert_eq!(self.late(now), [], "these should have timed out");
        for queue in self.queue.values_mut() {
            queue.retain(|entry| entry.is_attached() || entry.kept_until > now);
        }
    }

    /// The contended locks: key, number of requests, and the time since which the first waiter waits. The most contended comes
    /// first.
    pub fn contended(&self) -> Vec<(u8, usize, UnixMs)> {
        let attached = |queue: &'_ Vec<ModelEntry>| -> Option<(usize, usize, UnixMs)> {
            let first = queue.iter().find(|entry| entry.is_attached())?;
            Some((first.turn, queue.iter().map(|entry| entry.requests.len()).sum(), first.since))
        };
        let mut locks: Vec<_> = self.queue.iter().filter_map(|(key, queue)| Some((*key, attached(queue)?))).collect();
        locks.sort_by_key(|(_, (turn, requests, _))| (Reverse(*requests), *turn));
        locks.into_iter().map(|(key, (_, requests, since))| (key, requests, since)).collect()
    }

    pub fn late(&self, now: UnixMs) -> Vec<u64> {
        let requests = self.queue.values().flatten().flat_map(|entry| &entry.requests);
        let late = requests.filter(|(_, deadline, _)| deadline.is_some_and(|deadline| now > deadline));
        late.map(|(waiter, ..)| *waiter).collect()
    }
}
