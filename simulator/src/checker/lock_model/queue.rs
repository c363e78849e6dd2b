//! The model of a queue.

use redis_lock::server::{ClientId, Tag};

use super::LockModel;
use crate::checker::spec::{Lock, Ms, Who};
use crate::request::Form;
use crate::request::Terms;

/// An entry of the queue.
#[derive(Clone)]
pub struct QueueEntry {
    pub who: Who,
    pub turn: u64,
    /// The time at which the first request joined.
    pub since: Ms,
    /// The requests that wait now.
    pub requests: Vec<Waiting>,
    /// The end of the grace period, if the entry is detached.
    pub kept_until: Option<Ms>,
    /// Whether the module may have removed the entry to free memory, so that a new entry has a later turn.
    pub vague: bool,
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

    /// Records which entry is the first.
    pub fn note_first(&mut self, now: Ms) {
        let first = self.first(now).map(QueueEntry::tags);
        let is_same = |(tags, _): &(Vec<Tag>, Ms)| first.as_ref() == Some(tags);
        if !self.first_since.as_ref().is_some_and(is_same) {
            self.first_since = first.map(|tags| (tags, now));
        }
    }

    /// Returns whether the module may refuse, and whether it must refuse, a request for a queue of fewer than `most`
    /// waiters. It does not refuse a copy of a waiting request, or a request with a detached entry.
    pub fn is_too_long_for(&self, who: &Who, most: i64) -> (bool, bool) {
        let place = self.queue.iter().find(|queue_entry| queue_entry.who == *who);
        let has_place = place.is_some_and(|queue_entry| !queue_entry.vague);
        let [most_waiting, fewest_waiting] = [self.waiting(), self.still_waiting()].map(|count| count as i64);
        (most_waiting >= most && !has_place, fewest_waiting >= most && place.is_none())
    }

    /// Returns whether this claim may be the first of the queue. Entries before it do not count if they have timed out.
    pub fn may_be_next(&self, who: &Who, now: Ms) -> bool {
        self.may_be_next_but_for(None, who, now)
    }

    /// Returns the same, as if the name `withdrawn` had no entries.
    pub fn may_be_next_but_for(&self, withdrawn: Option<&[u8]>, who: &Who, now: Ms) -> bool {
        let ahead = self.queue.iter().take_while(|queue_entry| queue_entry.who != *who);
        let ahead = ahead.filter(|queue_entry| withdrawn.is_none_or(|withdrawn| queue_entry.who.name != *withdrawn));
        let waits = self.queue.iter().any(|queue_entry| queue_entry.who == *who && !queue_entry.requests.is_empty());
        waits && !ahead.into_iter().any(|queue_entry| queue_entry.is_attached(now) && !queue_entry.vague)
    }

    /// Returns whether the entry of this claim has a waiter that is not unblocked.
    pub fn waits(&self, who: &Who) -> bool {
        let queue_entry = self.queue.iter().find(|queue_entry| queue_entry.who == *who);
        queue_entry.is_some_and(|queue_entry| queue_entry.requests.iter().any(|request| !request.is_unblocked))
    }

    /// Returns the requests that wait, in the order of the queue.
    pub fn requests(&self) -> impl Iterator<Item = &Waiting> {
        self.queue.iter().flat_map(|queue_entry| &queue_entry.requests)
    }

    /// Returns the number of requests whose waits have not ended.
    pub fn still_waiting(&self) -> usize {
        self.requests().filter(|request| !request.is_unblocked).count()
    }

    /// Returns the number of requests that wait.
    pub fn waiting(&self) -> usize {
        self.requests().count()
    }

    /// Adds a request to the entry of its claim, or to a new entry at the end of the queue.
    pub fn join(&mut self, who: Who, request: Waiting, now: Ms) {
        let index = match self.queue.iter().position(|queue_entry| queue_entry.who == who) {
            Some(index) => index,
            None => {
                self.last_turn += 1;
                let turn = self.last_turn;
                self.queue.push(QueueEntry {
                    who,
                    turn,
                    since: now,
                    requests: Vec::new(),
                    kept_until: None,
                    vague: false,
                });
                self.queue.len() - 1
            }
        };
        let queue_entry = &mut self.queue[index];
        queue_entry.kept_until = None;
        queue_entry.requests.push(request);
    }

    /// Returns the entry of a request.
    pub fn queue_entry_of(&self, tag: Tag) -> Option<&QueueEntry> {
        self.queue.iter().find(|queue_entry| queue_entry.requests.iter().any(|request| request.tag == tag))
    }

    /// Removes a request. The entry stays until `kept_until` if this was its last request.
    pub fn withdraw_request(&mut self, tag: Tag, kept_until: Option<Ms>) -> Option<Waiting> {
        let of = |queue_entry: &QueueEntry| queue_entry.requests.iter().position(|request| request.tag == tag);
        let at = self.queue.iter().position(|queue_entry| of(queue_entry).is_some())?;
        self.lags = true;
        let queue_entry = &mut self.queue[at];
        let request = queue_entry.requests.remove(of(queue_entry)?);
        if queue_entry.requests.is_empty() {
            queue_entry.kept_until = kept_until;
            if kept_until.is_none() {
                self.queue.remove(at);
            }
        }
        Some(request)
    }

    /// Removes the entries whose grace period ended before `surely`. An entry whose period ends by `now` may still exist, because
    /// the module removes it later.
    pub fn drop_expired(&mut self, surely: Ms, now: Ms) {
        self.queue.retain(|queue_entry| queue_entry.kept_until.is_none_or(|until| until >= surely));
        let over = self.queue.iter_mut().filter(|queue_entry| queue_entry.kept_until.is_some_and(|until| until <= now));
        over.for_each(|queue_entry| queue_entry.vague = true);
    }

    /// Marks the detached entries, which the module may remove to free capacity.
    pub fn free_capacity(&mut self) {
        self.queue
            .iter_mut()
            .filter(|queue_entry| queue_entry.requests.is_empty())
            .for_each(|queue_entry| queue_entry.vague = true);
    }

    /// Removes and returns the entry of a claim.
    pub fn take_queue_entry(&mut self, who: &Who) -> Option<QueueEntry> {
        let index = self.queue.iter().position(|queue_entry| queue_entry.who == *who)?;
        Some(self.queue.remove(index))
    }

    /// Removes all entries of a name, except for the form `kept`. Returns their requests, and whether there was an entry.
    pub fn withdraw(&mut self, name: &[u8], kept: Option<Form>) -> (Vec<Waiting>, bool) {
        let mut withdrawn = Vec::new();
        let mut had_queue_entry = false;
        for form in Form::ALL.into_iter().filter(|&form| Some(form) != kept) {
            if let Some(queue_entry) = self.take_queue_entry(&Who { form, name: name.to_vec() }) {
                withdrawn.extend(queue_entry.requests);
                (had_queue_entry, self.lags) = (true, true);
            }
        }
        (withdrawn, had_queue_entry)
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
        self.requests.iter().any(|request| !request.is_over(now))
    }

    /// Returns whether the turn of the entry is certain, and a blocked client waits. No later entry is granted a share before it.
    pub fn is_certain(&self) -> bool {
        !self.vague && self.requests.iter().any(|request| request.channel.is_none() && !request.is_unblocked)
    }

    /// Returns the copies that count: those that are not unblocked, or all if all are unblocked.
    fn copies(&self) -> impl Iterator<Item = &Waiting> {
        let all_unblocked = self.requests.iter().all(|request| request.is_unblocked);
        self.requests.iter().filter(move |request| all_unblocked || !request.is_unblocked)
    }

    /// Returns the lease that all copies get, which is the longest. A copy without a lease counts as the longest,
    /// unless a copy has a session or waits for a message, which need a lease.
    pub fn lease(&self) -> Option<i64> {
        let needs_lease = |request: &Waiting| request.session.is_some() || request.channel.is_some();
        let longest = self.copies().filter_map(|request| request.lease).max();
        let has_none = self.copies().any(|request| request.lease.is_none());
        if has_none && !self.copies().any(needs_lease) { None } else { longest }
    }

    /// Returns the tags of the copies that count.
    pub(super) fn tags(&self) -> Vec<Tag> {
        self.copies().map(|request| request.tag).collect()
    }

    /// Returns the smallest limit of all copies.
    pub fn limit(&self) -> Option<i64> {
        self.copies().filter_map(|request| request.limit).min()
    }

    /// Returns whether `lock` has capacity for this entry.
    pub fn fits(&self, lock: &Lock) -> bool {
        lock.has_capacity(self.who.form, self.limit())
    }
}
