//! The model of a queue.

use redis_lock::server::{ClientId, Tag};

use super::LockModel;
use crate::checker::spec::{Lock, Ms, Who};
use crate::request::Terms;

/// An entry of the queue: a claim with its turn. A name has one at most.
#[derive(Clone)]
pub struct QueueEntry {
    pub who: Who,
    pub turn: u64,
    /// The time at which the first request with this turn joined.
    pub since: Ms,
    /// The request that waits now.
    pub request: Option<Waiting>,
    /// The end of the grace period, if the entry is detached.
    pub kept_until: Option<Ms>,
}

/// A request that waits.
#[derive(Clone)]
pub struct Waiting {
    pub tag: Tag,
    pub client: ClientId,
    pub deadline: Option<Ms>,
    pub lease: Option<i64>,
    /// The limit of shares in the request.
    pub limit: Option<i64>,
    /// The terms of the requested session.
    pub session: Option<Terms>,
    /// Whether the module has unblocked the client, and the server has not replied yet.
    pub is_unblocked: bool,
    /// The channel on which a message ends the wait. `None`: the reply ends it.
    pub channel: Option<Vec<u8>>,
    /// Whether the server may be unable to continue the wait.
    pub may_be_aborted: bool,
    /// The time since which the server certainly cannot continue the wait.
    pub aborted_since: Option<Ms>,
}

impl LockModel {
    /// Returns the first attached entry.
    pub fn first(&self, now: Ms) -> Option<&QueueEntry> {
        self.queue.iter().find(|queue_entry| queue_entry.is_attached(now))
    }

    /// Records which request is the first.
    pub fn note_first(&mut self, now: Ms) {
        let first = self.first(now).and_then(QueueEntry::tag);
        if self.first_since.map(|(tag, _)| tag) != first {
            self.first_since = first.map(|tag| (tag, now));
        }
    }

    /// Returns whether the module may refuse, and whether it must refuse, a request for a queue of fewer than `most`
    /// waiters. It does not refuse a request that takes the place of another one, or a detached entry.
    pub fn is_too_long_for(&self, who: &Who, most: i64) -> (bool, bool) {
        let place = self.place_of(&who.name);
        let has_place = place.is_some_and(|entry| entry.who == *who || entry.request.is_some());
        let [most_waiting, fewest_waiting] = [self.waiting(), self.still_waiting()].map(|count| count as i64);
        (most_waiting >= most && !has_place, fewest_waiting >= most && place.is_none())
    }

    /// Returns whether this claim may be the first of the queue. Entries before it do not count if they have timed out.
    pub fn may_be_next(&self, who: &Who, now: Ms) -> bool {
        self.may_be_next_but_for(None, who, now)
    }

    /// Returns the same, as if the name `withdrawn` had no entry.
    pub fn may_be_next_but_for(&self, withdrawn: Option<&[u8]>, who: &Who, now: Ms) -> bool {
        let mut ahead = self.queue.iter().take_while(|entry| entry.who != *who);
        let is_ahead = |entry: &QueueEntry| entry.is_attached(now) && withdrawn != Some(&*entry.who.name);
        self.place(who).is_some_and(|entry| entry.request.is_some()) && !ahead.any(is_ahead)
    }

    /// Returns the entry of a claim.
    pub fn place(&self, who: &Who) -> Option<&QueueEntry> {
        self.place_of(&who.name).filter(|entry| entry.who == *who)
    }

    /// Returns the entry of a name.
    pub fn place_of(&self, name: &[u8]) -> Option<&QueueEntry> {
        self.queue.iter().find(|entry| entry.who.name == name)
    }

    /// Returns whether the entry of this claim has a waiter that is not unblocked.
    pub fn waits(&self, who: &Who) -> bool {
        self.place(who).and_then(|entry| entry.request.as_ref()).is_some_and(|request| !request.is_unblocked)
    }

    /// Returns the requests that wait, in the order of the queue.
    pub fn requests(&self) -> impl Iterator<Item = &Waiting> {
        self.queue.iter().filter_map(|entry| entry.request.as_ref())
    }

    /// Returns the same, to change them.
    pub fn requests_mut(&mut self) -> impl Iterator<Item = &mut Waiting> {
        self.queue.iter_mut().filter_map(|entry| entry.request.as_mut())
    }

    /// Returns the number of requests whose waits have not ended.
    pub fn still_waiting(&self) -> usize {
        self.requests().filter(|request| !request.is_unblocked).count()
    }

    /// Returns the number of requests that wait.
    pub fn waiting(&self) -> usize {
        self.requests().count()
    }

    /// Puts a request into the queue: at the turn of the entry of its claim, or at the end. Returns the request that it replaces.
    pub fn join(&mut self, who: Who, request: Waiting, now: Ms) -> Option<Waiting> {
        let place = self.queue.iter().position(|entry| entry.who.name == who.name);
        if let Some(entry) = place.map(|index| &mut self.queue[index]).filter(|entry| entry.who == who) {
            entry.kept_until = None;
            return entry.request.replace(request);
        }
        let replaced = place.map(|index| self.queue.remove(index));
        self.lags |= replaced.is_some();
        self.last_turn += 1;
        let (turn, request) = (self.last_turn, Some(request));
        self.queue.push(QueueEntry { who, turn, since: now, request, kept_until: None });
        replaced.and_then(|entry| entry.request)
    }

    /// Returns the entry of a request.
    pub fn queue_entry_of(&self, tag: Tag) -> Option<&QueueEntry> {
        self.queue.iter().find(|entry| entry.tag() == Some(tag))
    }

    /// Removes a request. The entry stays until `kept_until`.
    pub fn withdraw_request(&mut self, tag: Tag, kept_until: Option<Ms>) -> Option<Waiting> {
        let index = self.queue.iter().position(|entry| entry.tag() == Some(tag))?;
        self.lags = true;
        self.queue[index].kept_until = kept_until;
        let request = self.queue[index].request.take();
        if kept_until.is_none() {
            self.queue.remove(index);
        }
        request
    }

    /// Removes and returns the entry of a name.
    pub fn withdraw(&mut self, name: &[u8]) -> Option<QueueEntry> {
        let index = self.queue.iter().position(|entry| entry.who.name == name)?;
        self.lags = true;
        Some(self.queue.remove(index))
    }
}

impl Waiting {
    /// Returns whether the request has timed out.
    pub fn is_over(&self, now: Ms) -> bool {
        self.deadline.is_some_and(|deadline| now > deadline)
    }
}

impl QueueEntry {
    /// Returns whether a request waits that has not timed out.
    pub fn is_attached(&self, now: Ms) -> bool {
        self.request.as_ref().is_some_and(|request| !request.is_over(now))
    }

    /// Returns the lease that the request asks for.
    pub fn lease(&self) -> Option<i64> {
        self.request.as_ref()?.lease
    }

    /// Returns the number of the request.
    pub fn tag(&self) -> Option<Tag> {
        self.request.as_ref().map(|request| request.tag)
    }

    /// Returns the greatest number of shares, with this one.
    pub fn limit(&self) -> Option<i64> {
        self.request.as_ref()?.limit
    }

    /// Returns whether `lock` has capacity for this entry.
    pub fn fits(&self, lock: &Lock) -> bool {
        lock.has_capacity(self.who.form, self.limit())
    }
}
