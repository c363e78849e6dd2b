//! Random histories against a model that is too simple to be wrong: one list of places a lock, searched from the front.
//!
//! A tiny server drives the real core the way the host does, over a keyspace that is a map. After every step the two
//! must agree on who holds, who waits in which order, whose place is kept, and who was told what.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;

use super::*;
use crate::core::{Decision, Holder, Lease, Lock, Write, acquire, reenter, release};

const KEYS: u8 = 3;
const GRACE_MS: i64 = 15;

/// What happens next. `key` and `who` are small, so that histories collide.
#[derive(Clone, Debug)]
enum Event {
    Acquire {
        kind: Kind,
        key: u8,
        who: u8,
        lease_ms: Option<i64>,
        block_ms: Option<i64>,
    },
    Release {
        key: u8,
        who: u8,
    },
    Delete {
        key: u8,
    },
    /// The nth connection that waits goes away.
    Leave {
        nth: usize,
    },
    Pass {
        ms: i64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Granted,
    Nil,
    /// The client went away: no answer that matters.
    Gone,
}

type ModelHolder = (Kind, u8, i64, Option<UnixMs>);

/// The naive model: holders by key, and for each key the places in a list.
#[derive(Default)]
struct Model {
    holders: BTreeMap<u8, ModelHolder>,
    line: BTreeMap<u8, Vec<ModelPlace>>,
    answers: BTreeMap<u64, Answer>,
}

struct ModelPlace {
    kind: Kind,
    who: u8,
    lease_ms: Option<i64>,
    /// Connection and deadline of each request.
    requests: Vec<(u64, Option<UnixMs>)>,
    /// When it is dropped, if it is away.
    kept_until: UnixMs,
}

impl ModelPlace {
    fn is_present(&self) -> bool {
        !self.requests.is_empty()
    }
}

impl Model {
    fn request(&mut self, waiter: u64, now: UnixMs, event: &Event) {
        let &Event::Acquire { kind, key, who, lease_ms, block_ms } = event else { return };
        let mine = |holder: &ModelHolder| holder.0 == kind && holder.1 == who;
        let answer = match (self.holders.get_mut(&key), block_ms) {
            (None, _) => {
                self.holders.insert(key, (kind, who, 1, lease_ms.map(|ms| now + ms)));
                self.forget(key, |turn| turn.kind == kind && turn.who == who);
                Answer::Granted
            }
            (Some(holder), _) if mine(holder) => {
                holder.2 += i64::from(kind == Kind::Reentrant);
                holder.3 = holder.3.map(|end| end.max(lease_ms.map_or(end, |ms| now + ms)));
                Answer::Granted
            }
            (Some(_), None) => Answer::Nil,
            (Some(_), Some(ms)) => return self.wait(waiter, now, event, (ms > 0).then(|| now + ms)),
        };
        self.answers.insert(waiter, answer);
    }

    fn wait(&mut self, waiter: u64, _now: UnixMs, event: &Event, deadline: Option<UnixMs>) {
        let &Event::Acquire { kind, key, who, lease_ms, .. } = event else { return };
        let line = self.line.entry(key).or_default();
        match line.iter_mut().find(|turn| turn.kind == kind && turn.who == who) {
            Some(turn) => {
                let longest = turn.lease_ms.zip(lease_ms).map(|(present, lease)| present.max(lease));
                turn.lease_ms = if turn.is_present() { longest } else { lease_ms };
                turn.requests.push((waiter, deadline));
            }
            None => line.push(ModelPlace { kind, who, lease_ms, requests: vec![(waiter, deadline)], kept_until: 0 }),
        }
    }

    fn forget(&mut self, key: u8, which: impl Fn(&ModelPlace) -> bool) {
        let line = self.line.entry(key).or_default();
        for (waiter, _) in line.iter().filter(|turn| which(turn)).flat_map(|turn| &turn.requests) {
            self.answers.insert(*waiter, Answer::Nil);
        }
        line.retain(|turn| !which(turn));
    }

    fn release(&mut self, key: u8, who: u8, now: UnixMs) {
        let remaining = match self.holders.get_mut(&key).filter(|holder| holder.1 == who) {
            Some(holder) => {
                holder.2 -= 1;
                holder.2
            }
            None => return self.forget(key, |turn| turn.who == who),
        };
        if remaining == 0 {
            self.forget(key, |turn| turn.who == who);
            self.free(key, now);
        }
    }

    fn free(&mut self, key: u8, now: UnixMs) {
        self.holders.remove(&key);
        let line = self.line.entry(key).or_default();
        let Some(first) = line.iter().position(ModelPlace::is_present) else { return };
        let first = line.remove(first);
        self.holders.insert(key, (first.kind, first.who, 1, first.lease_ms.map(|ms| now + ms)));
        self.answers.extend(first.requests.into_iter().map(|(waiter, _)| (waiter, Answer::Granted)));
    }

    fn leave(&mut self, waiter: u64, now: UnixMs, answer: Answer) {
        for turn in self.line.values_mut().flatten().filter(|turn| turn.is_present()) {
            turn.requests.retain(|(other, _)| *other != waiter);
            turn.kept_until = now + GRACE_MS;
        }
        self.answers.insert(waiter, answer);
    }

    /// Lets one millisecond pass: leases that have ended go first, then deadlines.
    fn tick(&mut self, now: UnixMs) {
        let has_ended = |holder: &ModelHolder| holder.3.is_some_and(|end| now > end);
        let ended: Vec<u8> = self.holders.iter().filter(|(_, holder)| has_ended(holder)).map(|(key, _)| *key).collect();
        for key in ended {
            self.free(key, now);
        }
        let requests = self.line.values().flatten().flat_map(|turn| &turn.requests);
        let late = requests.filter(|(_, deadline)| deadline.is_some_and(|deadline| now > deadline));
        let late: Vec<u64> = late.map(|(waiter, _)| *waiter).collect();
        for waiter in late {
            self.leave(waiter, now, Answer::Nil);
        }
        for line in self.line.values_mut() {
            line.retain(|turn| turn.is_present() || turn.kept_until > now);
        }
    }
}

/// The real core behind a keyspace that is a map.
struct Server {
    keys: BTreeMap<u8, Holder<'static>>,
    waiting: WaitQueues,
    requests: BTreeMap<u64, RequestId>,
    answers: BTreeMap<u64, Answer>,
}

impl Server {
    fn new() -> Self {
        let (keys, requests, answers) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { keys, waiting: WaitQueues::new(), requests, answers }
    }

    fn lock(&self, key: u8) -> Lock<'static> {
        self.keys.get(&key).cloned().map_or(Lock::Free, Lock::Held)
    }

    fn answer(&mut self, waiter: u64, answer: Answer) {
        self.requests.remove(&waiter);
        let earlier = self.answers.insert(waiter, answer);
        assert_eq!(earlier, None, "waiter {waiter} was answered twice");
    }

    fn request(&mut self, waiter: u64, now: UnixMs, event: &Event) {
        let &Event::Acquire { kind, key, who, lease_ms, block_ms } = event else { return };
        let lease = lease_ms.and_then(Lease::from_ms);
        let decision = match kind {
            Kind::Mutex => acquire(&self.lock(key), &[who], lease, false, now),
            Kind::Reentrant => reenter(&self.lock(key), &[who], lease, None, now).unwrap(),
        };
        match (decision, block_ms) {
            (Decision::Done { write, .. }, _) => {
                self.write(key, &[who], write, now);
                self.answer(waiter, Answer::Granted);
            }
            (Decision::Contended, None) => self.answer(waiter, Answer::Nil),
            (Decision::Contended, Some(ms)) => {
                let claim = Claim { kind, owner: [who].into(), lease };
                let deadline = (ms > 0).then(|| now + ms);
                let join = Join { db: 0, key: &[key], claim, waiter: WaiterId(waiter), now, deadline };
                self.requests.insert(waiter, self.waiting.join(join, usize::MAX).unwrap().request);
            }
        }
        self.watch(key);
    }

    fn release(&mut self, key: u8, who: u8, now: UnixMs) {
        match release(&self.lock(key), &[who], None, None, now) {
            Ok(Decision::Done { write: Write::Free, .. }) => {
                self.withdraw(key, &[who]);
                self.free(key, now);
            }
            Ok(Decision::Done { write, .. }) => self.write(key, &[who], write, now),
            _ => self.withdraw(key, &[who]),
        }
        self.watch(key);
    }

    fn withdraw(&mut self, key: u8, owner: &[u8]) {
        for waiter in self.waiting.withdraw(0, &[key], owner).unwrap_or_default() {
            self.answer(waiter.0, Answer::Nil);
        }
    }

    fn write(&mut self, key: u8, owner: &[u8], write: Write, now: UnixMs) {
        match write {
            Write::Confirm { lease_end } => {
                let holder = self.keys.get_mut(&key).unwrap();
                holder.lease_end = lease_end.or(holder.lease_end);
            }
            Write::Take { kind, lease_end } => {
                let holder = Holder { kind, owner: Cow::Owned(owner.to_vec()), holds: 1, lease_end };
                assert_eq!(self.keys.insert(key, holder), None, "a lock was taken from its holder");
                self.waiting.drop_away_place(0, &[key], kind, owner);
            }
            Write::SetHolds { holds, lease_end } => {
                let holder = self.keys.get_mut(&key).unwrap();
                holder.holds = holds;
                holder.lease_end = lease_end.or(holder.lease_end);
            }
            Write::SetLease(end) => self.keys.get_mut(&key).unwrap().lease_end = Some(end),
            Write::Free => self.free(key, now),
        }
    }

    fn free(&mut self, key: u8, now: UnixMs) {
        self.keys.remove(&key);
        let Some(grant) = self.waiting.queue_of(0, &[key]).and_then(|queue| self.waiting.grant_first(queue)) else {
            return;
        };
        let lease_end = grant.claim.lease.map(|lease| lease.end_from(now));
        let owner = Cow::Owned(grant.claim.owner.to_vec());
        self.keys.insert(key, Holder { kind: grant.claim.kind, owner, holds: 1, lease_end });
        for waiter in grant.waiters {
            self.answer(waiter.0, Answer::Granted);
        }
    }

    fn watch(&mut self, key: u8) {
        if let Some(queue) = self.waiting.queue_of(0, &[key]) {
            self.waiting.review_at_lease_end(queue, self.lock(key).lease_end());
        }
    }

    fn leave(&mut self, waiter: u64, now: UnixMs) {
        let request = self.requests.get(&waiter).copied().unwrap();
        assert_eq!(self.waiting.leave(request, Some(now + GRACE_MS)), Some(WaiterId(waiter)));
        self.answer(waiter, Answer::Gone);
    }

    fn tick(&mut self, now: UnixMs) {
        // Locks without waiters expire, too, but nobody reviews them.
        let watched =
            |key: u8| self.waiting.queue_of(0, &[key]).is_some_and(|queue| self.waiting.waiter_count_of(queue) > 0);
        let unseen = |key: u8, holder: &Holder<'_>| !watched(key) && holder.lease_end.is_some_and(|end| now > end);
        self.keys.retain(|key, holder| !unseen(*key, holder));
        while let Some(due) = self.waiting.pop_due(now, DueFilter::All, Some(now + GRACE_MS)) {
            match due {
                Due::Dropped => {}
                Due::TimedOut(waiter) => self.answer(waiter.0, Answer::Nil),
                Due::Review(queue) => {
                    let key = self.waiting.lock_of(queue).unwrap().1[0];
                    assert!(self.lock(key).lease_end().is_some_and(|end| now > end), "looked too early");
                    self.free(key, now);
                    self.watch(key);
                }
            }
        }
    }
}

fn assert_agreement(server: &Server, model: &Model, now: UnixMs) {
    for key in 0..KEYS {
        let holder = server.keys.get(&key).filter(|holder| holder.lease_end.is_none_or(|end| now <= end));
        let holder = holder.map(|holder| (holder.kind, holder.owner[0], holder.holds, holder.lease_end));
        assert_eq!(holder, model.holders.get(&key).copied(), "holder of {key}");

        let queue = server.waiting.queue_of(0, &[key]);
        let turns = model.line.get(&key).into_iter().flatten();
        let present: Vec<(Kind, u8)> =
            turns.clone().filter(|turn| turn.is_present()).map(|turn| (turn.kind, turn.who)).collect();
        let mut line: Vec<(Kind, u8)> = queue
            .into_iter()
            .flat_map(|queue| server.waiting.waiters(queue))
            .map(|waiter| (waiter.claim.kind, waiter.claim.owner[0]))
            .collect();
        line.dedup();
        assert_eq!(line, present, "line for {key}");
        let places = queue.and_then(|queue| server.waiting.queues.get(queue)).map_or(0, |queue| queue.places as usize);
        assert_eq!(places, turns.count(), "places for {key}, those that are away included");
        assert!(holder.is_some() || line.is_empty(), "{key} is free while somebody waits for it");
    }
    assert_eq!(server.answers, model.answers);
    let waiting: HashSet<_> = server.requests.keys().collect();
    assert_eq!(waiting.len(), server.waiting.waiter_count(), "a waiter was lost");
    assert!(waiting.iter().all(|waiter| !server.answers.contains_key(waiter)));
}

fn event() -> impl Strategy<Value = Event> {
    let kind = prop_oneof![Just(Kind::Mutex), Just(Kind::Reentrant)];
    let lease_ms = prop::option::of(1..30i64);
    let block_ms = prop::option::of(prop_oneof![Just(0), 1..40i64]);
    prop_oneof![
        6 => (kind, 0..KEYS, 0..6u8, lease_ms, block_ms)
            .prop_map(|(kind, key, who, lease_ms, block_ms)| Event::Acquire { kind, key, who, lease_ms, block_ms }),
        4 => (0..KEYS, 0..6u8).prop_map(|(key, who)| Event::Release { key, who }),
        1 => (0..KEYS).prop_map(|key| Event::Delete { key }),
        2 => any::<usize>().prop_map(|nth| Event::Leave { nth }),
        3 => (1..25i64).prop_map(|ms| Event::Pass { ms }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_history_agrees_with_the_naive_queue(history in prop::collection::vec(event(), 1..120)) {
        let (mut server, mut model, mut now) = (Server::new(), Model::default(), 1_000);
        for (number, event) in history.into_iter().enumerate() {
            match event {
                Event::Acquire { .. } => {
                    server.request(number as u64, now, &event);
                    model.request(number as u64, now, &event);
                }
                Event::Release { key, who } => {
                    server.release(key, who, now);
                    model.release(key, who, now);
                }
                Event::Delete { key } => {
                    server.free(key, now);
                    server.watch(key);
                    model.free(key, now);
                }
                Event::Leave { nth } => {
                    let count = server.requests.len();
                    if let Some(&waiter) = server.requests.keys().nth(nth % count.max(1)) {
                        server.leave(waiter, now);
                        model.leave(waiter, now, Answer::Gone);
                    }
                }
                Event::Pass { ms } => {
                    for _ in 0..ms {
                        now += 1;
                        server.tick(now);
                        model.tick(now);
                        assert_agreement(&server, &model, now);
                    }
                }
            }
            assert_agreement(&server, &model, now);
        }
    }
}
