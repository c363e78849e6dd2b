//! Random histories against a naive model: one list of queue entries for each lock, searched from the front.
//!
//! A small server drives the real core as the host does. After each step both must agree on the holders, the waiters and their
//! order, the detached entries, and the replies.

mod naive;
mod server;

use std::collections::HashSet;

use proptest::prelude::*;

use crate::core::{Contention, Kind, UnixMs};
use naive::{Answer, Model, ModelEntry, ModelHolder, Take, has_capacity};
use server::Server;

const KEYS: u8 = 3;
const GRACE_MS: i64 = 15;

/// One step of a history. Keys and callers are small numbers, so that requests collide.
#[derive(Clone, Debug)]
enum Event {
    Take(Take),
    Release {
        key: u8,
        who: u8,
    },
    Delete {
        key: u8,
    },
    /// The nth waiting connection disconnects.
    Withdraw {
        nth: usize,
    },
    Pass {
        ms: i64,
    },
}

fn assert_agreement(server: &Server, model: &Model, now: UnixMs) {
    for key in 0..KEYS {
        let sorted = |holders: &[ModelHolder]| {
            let mut holders: Vec<_> =
                holders.iter().copied().filter(|it| it.end.is_none_or(|end| now <= end)).collect();
            holders.sort_unstable();
            holders
        };
        let holders = sorted(model.holders.get(&key).map_or(&[], Vec::as_slice));
        assert_eq!(sorted(server.holders(key)), holders, "holders of {key}");

        let queue = server.waiting.record_of(0, &[key]);
        let entries = model.queue.get(&key).into_iter().flatten();
        let attached: Vec<&ModelEntry> = entries.clone().filter(|entry| entry.is_attached()).collect();
        let mut order: Vec<(Kind, u8)> = queue
            .into_iter()
            .flat_map(|queue| server.waiting.waiters(queue))
            .map(|waiter| (waiter.claim.kind, waiter.claim.owner[0]))
            .collect();
        order.dedup();
        let expected: Vec<(Kind, u8)> = attached.iter().map(|entry| (entry.take.kind, entry.take.who)).collect();
        assert_eq!(order, expected, "queue order of {key}");
        let count =
            queue.and_then(|queue| server.waiting.records.get(queue)).map_or(0, |record| record.queue.entries as usize);
        assert_eq!(count, entries.count(), "entries of {key}, attached or detached");
        if let Some(first) = attached.first() {
            assert!(
                !has_capacity(&holders, &first.wanted()),
                "{first_who} waits for {key} although there is capacity next to {holders:?}",
                first_who = first.take.who
            );
        }
    }
    assert_contention(server, model);
    server.waiting.check_invariants();
    assert_eq!(server.answers, model.answers);
    let waiting: HashSet<_> = server.requests.keys().collect();
    assert_eq!(waiting.len(), server.waiting.waiter_count(), "a waiter was lost");
    assert!(waiting.iter().all(|waiter| !server.answers.contains_key(waiter)));
}

fn assert_contention(server: &Server, model: &Model) {
    let expected = model.contended();
    for count in 1..=expected.len() + 1 {
        let most = server.waiting.most_contended(0, count);
        let most: Vec<_> = most.iter().map(|lock| (lock.key[0], lock.requests, lock.since)).collect();
        assert_eq!(most, expected[..count.min(expected.len())], "the {count} most contended");
    }
    let attached = model.queue.values().flatten().filter(|entry| entry.is_attached());
    let since = attached.min_by_key(|entry| entry.turn).map(|entry| entry.since);
    assert_eq!(server.waiting.contention(), Contention { locks: expected.len(), since });
}

fn event() -> impl Strategy<Value = Event> {
    let kind = prop_oneof![1 => Just(Kind::Mutex), 1 => Just(Kind::Reentrant), 2 => Just(Kind::Shared)];
    let lease_ms = prop::option::of(1..30i64);
    let block_ms = prop::option::of(prop_oneof![Just(0), 1..40i64]);
    let limit = prop::option::of(1..4usize);
    let take =
        (kind, 0..KEYS, 0..6u8, lease_ms, block_ms, limit).prop_map(|(kind, key, who, lease_ms, block_ms, limit)| {
            Take { kind, key, who, lease_ms, block_ms, limit: limit.filter(|_| kind == Kind::Shared) }
        });
    prop_oneof![
        6 => take.prop_map(Event::Take),
        4 => (0..KEYS, 0..6u8).prop_map(|(key, who)| Event::Release { key, who }),
        1 => (0..KEYS).prop_map(|key| Event::Delete { key }),
        2 => any::<usize>().prop_map(|nth| Event::Withdraw { nth }),
        3 => (1..25i64).prop_map(|ms| Event::Pass { ms }),
    ]
}

/// Advances both to `now`, at most one millisecond.
fn tick(server: &mut Server, model: &mut Model, now: UnixMs) {
    server.tick(now);
    model.tick(now, &std::mem::take(&mut server.timed_out));
    assert_agreement(server, model, now);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_history_agrees_with_naive_model(history in prop::collection::vec(event(), 1..120)) {
        let (mut server, mut model, mut now) = (Server::new(), Model::default(), 1_000);
        for (number, event) in history.into_iter().enumerate() {
            match event {
                Event::Take(take) => {
                    server.take(number as u64, now, &take);
                    model.take(number as u64, now, &take);
                }
                Event::Release { key, who } => {
                    server.release(key, who, now);
                    model.release(key, who, now);
                }
                Event::Delete { key } => {
                    server.delete(key, now);
                    model.delete(key, now);
                }
                Event::Withdraw { nth } => {
                    let count = server.requests.len();
                    if let Some(&waiter) = server.requests.keys().nth(nth % count.max(1)) {
                        server.withdraw_request(waiter, now);
                        model.withdraw_request(waiter, now, Answer::Withdrew);
                    }
                }
                Event::Pass { ms } => {
                    for _ in 0..ms {
                        now += 1;
                        tick(&mut server, &mut model, now);
                    }
                }
            }
            tick(&mut server, &mut model, now);
        }
    }
}
