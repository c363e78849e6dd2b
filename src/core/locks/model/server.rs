//! A small server that drives the real core as the host does. Its keyspace is a map.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::GRACE_MS;
use super::naive::{Answer, Holders, ModelHolder, Take, has_capacity};
use crate::core::locks::{Claim, Due, DueFilter, JoinRequest, Locks, RecordId, RequestId, WaiterId};
use crate::core::{Cause, Decision, Error, Holder, Kind, Lease, Limit, Lock, Shares, UnixMs, WaitEnd, Write};
use crate::core::{acquire, reenter, release, share};

/// The real core behind a keyspace that is a map.
pub struct Server {
    pub keys: Holders,
    pub waiting: Locks,
    pub requests: BTreeMap<u64, RequestId>,
    pub answers: BTreeMap<u64, Answer>,
    pub timed_out: Vec<u64>,
}

impl Server {
    pub fn new() -> Self {
        let (keys, requests, answers) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { keys, waiting: Locks::new(), requests, answers, timed_out: Vec::new() }
    }

    /// Returns the state of a lock for one caller.
    pub fn lock(&self, key: u8, who: u8) -> Lock<'static> {
        let holders = self.holders(key);
        let own = holders.iter().find(|holder| holder.who == who).map(holder_of);
        match holders {
            [] => Lock::Free,
            [holder] if !holder.is_share => Lock::Held(holder_of(holder)),
            shares => Lock::Shared(Shares { own, held: shares.len(), lease_end: latest_end(shares) }),
        }
    }

    pub fn holders(&self, key: u8) -> &[ModelHolder] {
        self.keys.get(&key).map_or(&[], Vec::as_slice)
    }

    pub fn own(&mut self, key: u8, who: u8) -> &mut ModelHolder {
        self.keys.get_mut(&key).unwrap().iter_mut().find(|holder| holder.who == who).unwrap()
    }

    pub fn answer(&mut self, waiter: u64, answer: Answer) {
        self.requests.remove(&waiter);
        let previous = self.answers.insert(waiter, answer);
        assert_eq!(previous, None, "waiter {waiter} was answered twice");
    }

    pub fn take(&mut self, waiter: u64, now: UnixMs, take: &Take) {
        let &Take { kind, key, who, lease_ms, block_ms, limit } = take;
        let (lock, lease) = (self.lock(key, who), lease_ms.and_then(Lease::from_ms));
        let limit = limit.and_then(|number| Limit::from_number(number as i64));
        let mut decision = match kind {
            Kind::Mutex => acquire(&lock, &[who], lease, false, now),
            Kind::Reentrant => reenter(&lock, &[who], lease, None, now),
            Kind::Shared => share(&lock, &[who], lease, limit, now),
        };
        if matches!(decision, Ok(Decision::Done { write: Write::Take { .. }, .. })) && self.waiters_for(key) > 0 {
            decision = Ok(Decision::Contended);
        }
        match (decision, block_ms) {
            (Err(error), _) => {
                assert_eq!(error, Error::OtherForm);
                self.answer(waiter, Answer::Refused);
            }
            (Ok(Decision::Done { write, .. }), _) => {
                self.write(take, write, now);
                self.answer(waiter, Answer::Granted);
            }
            (Ok(Decision::Contended), None) => self.answer(waiter, Answer::Nil),
            (Ok(Decision::Contended), Some(ms)) => {
                let claim = Claim { kind, owner: [who].into(), lease, limit };
                let deadline = (ms > 0).then(|| now + ms);
                let join = JoinRequest { db: 0, key: &[key], claim, waiter: WaiterId(waiter), now, deadline };
                self.requests.insert(waiter, self.waiting.join(join, usize::MAX).unwrap().request);
            }
        }
        self.watch(key);
    }

    pub fn waiters_for(&self, key: u8) -> usize {
        self.waiting.record_of(0, &[key]).map_or(0, |queue| self.waiting.waiter_count_of(queue))
    }

    pub fn write(&mut self, take: &Take, write: Write, now: UnixMs) {
        let &Take { key, who, .. } = take;
        match write {
            Write::Take { kind, lease_end } => {
                self.withdraw(key, &[who], Some(kind));
                self.waiting.drop_detached_entry(0, &[key], kind, &[who]);
                let holder = ModelHolder::new(take, now);
                assert_eq!((holder.has_kind(kind), holder.end), (true, lease_end));
                self.keys.entry(key).or_default().push(holder);
            }
            Write::Confirm { lease_end } => {
                let own = self.own(key, who);
                own.end = lease_end.or(own.end);
            }
            Write::SetHolds { holds, lease_end } => {
                let own = self.own(key, who);
                (own.holds, own.end) = (holds, lease_end.or(own.end));
            }
            Write::SetLease(_) | Write::Free | Write::RemoveShare => unreachable!("{write:?} for {take:?}"),
        }
    }

    pub fn release(&mut self, key: u8, who: u8, now: UnixMs) {
        match release(&self.lock(key, who), &[who], None, None, now) {
            Ok(Decision::Done { write: Write::SetHolds { holds, .. }, .. }) => self.own(key, who).holds = holds,
            Ok(Decision::Done { write: write @ (Write::Free | Write::RemoveShare), .. }) => {
                self.withdraw(key, &[who], None);
                assert_eq!(self.own(key, who).is_share, write == Write::RemoveShare);
                self.keys.entry(key).or_default().retain(|holder| holder.who != who);
                self.serve(key, now);
            }
            Ok(other) => unreachable!("{other:?}"),
            Err(_) => self.withdraw(key, &[who], None),
        }
        self.watch(key);
    }

    pub fn delete(&mut self, key: u8, now: UnixMs) {
        self.keys.remove(&key);
        self.serve(key, now);
        self.watch(key);
    }

    pub fn withdraw(&mut self, key: u8, owner: &[u8], kept: Option<Kind>) {
        for waiter in self.waiting.withdraw_owner(0, &[key], owner, kept, WaitEnd::UNLOGGED).unwrap_or_default() {
            self.answer(waiter.0, Answer::Nil);
        }
    }

    /// The queue of a lock, if there is capacity for its first waiter.
    pub fn first_with_capacity(&self, key: u8) -> Option<RecordId> {
        let queue = self.waiting.record_of(0, &[key])?;
        let take = take_of(key, self.waiting.first(queue)?);
        has_capacity(self.holders(key), &take).then_some(queue)
    }

    pub fn serve(&mut self, key: u8, now: UnixMs) {
        while let Some(queue) = self.first_with_capacity(key) {
            let grant = self.waiting.grant_first(queue, WaitEnd::UNLOGGED).unwrap();
            let take = take_of(key, &grant.claim);
            self.keys.entry(key).or_default().push(ModelHolder::new(&take, now));
            for request in grant.waiters {
                self.answer(request.waiter.0, Answer::Granted);
            }
            self.withdraw(key, &grant.claim.owner, Some(grant.claim.kind));
        }
    }

    /// Schedules the next review: at the end of the lease that gives capacity to the first waiter, or now.
    pub fn watch(&mut self, key: u8) {
        let Some(queue) = self.waiting.record_of(0, &[key]) else { return };
        if self.first_with_capacity(key).is_some() {
            return self.waiting.review_soon(queue, Cause::Other);
        }
        let holders = self.holders(key);
        let is_share = self.waiting.first(queue).is_some_and(|claim| claim.kind == Kind::Shared);
        let earliest = holders.iter().filter_map(|holder| holder.end).min();
        let end = if is_share { earliest } else { latest_end(holders) };
        self.waiting.review_at_lease_end(queue, end);
    }

    pub fn withdraw_request(&mut self, waiter: u64, now: UnixMs) {
        let request = self.requests.get(&waiter).copied().unwrap();
        assert_eq!(
            self.waiting.withdraw_request(request, Some(now + GRACE_MS), WaitEnd::UNLOGGED),
            Some(WaiterId(waiter))
        );
        self.answer(waiter, Answer::Withdrew);
    }

    /// Ends the leases that have passed, and runs the due work. A lock without waiters has no review, but its leases end, too.
    pub fn tick(&mut self, now: UnixMs) {
        for holders in self.keys.values_mut() {
            holders.retain(|holder| holder.end.is_none_or(|end| now <= end));
        }
        while let Some(due) = self.waiting.pop_due(now, DueFilter::All) {
            match due {
                Due::Dropped | Due::Skipped => {}
                Due::TimedOut(request) => {
                    let waiter =
                        self.waiting.withdraw_request(request, Some(now + GRACE_MS), WaitEnd::UNLOGGED).unwrap();
                    self.answer(waiter.0, Answer::Nil);
                    self.timed_out.push(waiter.0);
                }
                Due::Review(queue) => {
                    let key = self.waiting.lock_of(queue).unwrap().1[0];
                    let is_shares_turn = self.waiting.first(queue).is_some_and(|claim| claim.kind == Kind::Shared);
                    let may_have_capacity = is_shares_turn || self.holders(key).iter().all(|holder| holder.is_share);
                    assert!(may_have_capacity, "the review is too early");
                    self.serve(key, now);
                    self.watch(key);
                }
            }
        }
    }
}

pub fn holder_of(holder: &ModelHolder) -> Holder<'static> {
    let kinds = [Kind::Mutex, Kind::Reentrant, Kind::Shared];
    let kind = kinds.into_iter().find(|kind| holder.has_kind(*kind)).unwrap();
    Holder { kind, owner: Cow::Owned(vec![holder.who]), holds: holder.holds, lease_end: holder.end }
}

pub fn take_of(key: u8, claim: &Claim) -> Take {
    let lease_ms = claim.lease.map(|lease| lease.end_from(0));
    let limit = claim.limit.map(|limit| limit.number() as usize);
    Take { kind: claim.kind, key, who: claim.owner[0], lease_ms, block_ms: None, limit }
}

/// The end of the last lease, if all have one.
pub fn latest_end(holders: &[ModelHolder]) -> Option<UnixMs> {
    let ends: Option<Vec<UnixMs>> = holders.iter().map(|holder| holder.end).collect();
    ends.and_then(|ends| ends.into_iter().max())
}
