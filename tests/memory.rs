//! What a waiter costs in memory, in the core. The host adds 56 bytes (an entry of
//! `host/state/pending_replies.rs`), and the server what a client costs it that is blocked.

// With the layer to the server comes the server's allocator, and there can be one only.
#![cfg(not(feature = "server"))]

use std::alloc::System;

use redis_lock::core::{
    Claim, EndReason, EntryId, JoinRequest, Kind, Lease, Locks, SlowLogLimits, UnixMs, WaitEnd, WaiterId,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const WAITERS: usize = 10_000;
const NOW: UnixMs = 1_000_000;

/// What may stay when all are gone: nothing that depends on how many there were.
const REST: usize = 1024;

/// Bytes that were taken since the beginning of the region and not given back.
fn in_use(region: &Region<'_, System>) -> usize {
    let change = region.change();
    change.bytes_allocated.saturating_sub(change.bytes_deallocated)
}

fn end(reason: EndReason) -> WaitEnd {
    WaitEnd { reason, now: NOW, limits: SlowLogLimits { min_wait_ms: 1000, max_len: 128 } }
}

/// Adds a waiter as most clients are: with a random token as long as a UUID, a lease, and a time to wait.
fn join(waiting: &mut Locks, key: &[u8], number: usize) -> EntryId {
    let owner = format!("{number:036}").into_bytes().into();
    let claim = Claim { kind: Kind::Mutex, owner, lease: Lease::from_ms(30_000), limit: None };
    let (waiter, deadline) = (WaiterId(number as u64), Some(NOW + 10_000 + number as UnixMs));
    let join = JoinRequest { db: 0, key, claim, waiter, now: NOW, deadline };
    let joined = waiting.join(join, WAITERS, end(EndReason::Replaced)).expect("a place");
    let queue = waiting.record_of(0, key).expect("the queue that was joined");
    waiting.review_at_lease_end(queue, Some(NOW + 30_000));
    joined.entry
}

/// Returns the bytes in the core for each of many waiters, with this number of waiters at each key.
fn bytes_per_waiter(at_each_key: usize) -> usize {
    let keys: Vec<_> = (0..WAITERS / at_each_key).map(|number| format!("orders:{number:013}").into_bytes()).collect();
    let mut requests = Vec::with_capacity(WAITERS);
    let region = Region::new(ALLOCATOR);
    let mut waiting = Locks::new();
    // One after the other at each key, as they come in life.
    for number in 0..WAITERS {
        requests.push(join(&mut waiting, &keys[number % keys.len()], number));
    }
    let bytes = in_use(&region);
    for request in requests {
        waiting.withdraw(request, None, end(EndReason::Disconnected));
    }
    assert!(in_use(&region) <= REST, "{} bytes are left of {at_each_key} at each key", in_use(&region));
    bytes.div_ceil(WAITERS)
}

/// One test, because others would allocate at the same time.
#[test]
fn a_waiter_is_cheap() {
    for (at_each_key, limit) in [(WAITERS, 220), (10, 230), (1, 480)] {
        let bytes = bytes_per_waiter(at_each_key);
        println!("{bytes} bytes a waiter with {at_each_key} at each key");
        assert!(bytes <= limit, "{bytes} bytes a waiter with {at_each_key} at each key, of at most {limit}");
    }
}
