//! The core without a server: the time of a step of the queue with 100 and with 100,000 waiters, and of the pure parts of a
//! request for a free lock. `cargo bench -p bench --bench core`.

use std::borrow::Cow;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use redis_lock::command::{Acquire, LockCommand};
use redis_lock::core::{
    Claim, EndReason, EntryId, Holder, JoinRequest, Kind, Lease, Lock, Locks, SlowLogLimits, UnixMs, WaitEnd, WaiterId,
    acquire, release,
};

const LENGTHS: [usize; 2] = [100, 100_000];
const KEY: &[u8] = b"door";
const NOW: UnixMs = 1_700_000_000_000;
/// The end of the waits, which were too short for the slow log.
const END: WaitEnd =
    WaitEnd { reason: EndReason::Granted, now: NOW, limits: SlowLogLimits { min_wait_ms: 1000, max_len: 128 } };
/// The steps that are timed together, as a part of the queue: enough for the clock, few enough to keep its length.
const BATCH: usize = 10;

/// A queue for one lock. Each waiter has its own token and deadline.
struct Queue {
    waiting: Locks,
    requests: Vec<EntryId>,
    joined: u64,
}

impl Queue {
    fn of(length: usize) -> Self {
        let mut queue = Self { waiting: Locks::new(), requests: Vec::new(), joined: 0 };
        let claims = queue.claims(length);
        queue.join(claims);
        queue
    }

    fn claims(&self, count: usize) -> Vec<Claim> {
        let claim = |number: u64| {
            let owner = format!("{number:032x}").into_bytes().into();
            Claim { kind: Kind::Mutex, owner, lease: Lease::from_ms(30_000), limit: None }
        };
        (self.joined..).take(count).map(claim).collect()
    }

    fn join(&mut self, claims: Vec<Claim>) {
        for claim in claims {
            let deadline = Some(NOW + 20_000 + self.joined as UnixMs);
            let waiter = WaiterId(self.joined);
            let join = JoinRequest { db: 0, key: KEY, claim, waiter, now: NOW, deadline };
            self.requests.push(self.waiting.join(join, usize::MAX, END).expect("a queue without a limit").entry);
            self.joined += 1;
        }
    }

    /// Takes requests from all parts of the list, which remain in the queue.
    fn pick(&mut self, count: usize) -> Vec<EntryId> {
        const STRIDE: usize = 7919;
        (0..count).map(|pick| self.requests.swap_remove(pick * STRIDE % self.requests.len())).collect()
    }

    fn leave(&mut self, requests: Vec<EntryId>) {
        for request in requests {
            black_box(self.waiting.withdraw(request, None, END));
        }
    }

    fn grant(&mut self, count: usize) {
        let queue = self.waiting.record_of(0, KEY).expect("a queue");
        for _ in 0..count {
            black_box(self.waiting.grant_first(queue, END));
        }
    }
}

fn timed(step: impl FnOnce()) -> Duration {
    let started = Instant::now();
    step();
    started.elapsed()
}

/// Measures a step that is done `count` times. `batch` returns the time of its steps, and restores the length of the queue.
fn steps(criterion: &mut Criterion, name: &str, batch: fn(&mut Queue, usize) -> Duration) {
    let mut group = criterion.benchmark_group(name);
    for length in LENGTHS {
        let mut queue = Queue::of(length);
        group.bench_function(BenchmarkId::from_parameter(length), |bencher| {
            bencher.iter_custom(|count| {
                let mut left = usize::try_from(count).expect("a count in memory");
                let mut taken = Duration::ZERO;
                while left > 0 {
                    let now = left.min(length / BATCH);
                    taken += batch(&mut queue, now);
                    left -= now;
                }
                taken
            });
        });
    }
}

fn enqueue(criterion: &mut Criterion) {
    steps(criterion, "enqueue", |queue, count| {
        let claims = queue.claims(count);
        let taken = timed(|| queue.join(claims));
        let last = queue.requests.split_off(queue.requests.len() - count);
        queue.leave(last);
        taken
    });
}

fn cancel(criterion: &mut Criterion) {
    steps(criterion, "cancel", |queue, count| {
        let picked = queue.pick(count);
        let taken = timed(|| queue.leave(picked));
        let claims = queue.claims(count);
        queue.join(claims);
        taken
    });
}

fn grant(criterion: &mut Criterion) {
    steps(criterion, "grant", |queue, count| {
        let taken = timed(|| queue.grant(count));
        queue.requests.clear();
        let claims = queue.claims(count);
        queue.join(claims);
        taken
    });
}

/// The scans of INFO and LOCK.QUEUES, with 100,000 waiters for few and for many locks.
fn scan(criterion: &mut Criterion) {
    const WAITERS: usize = 100_000;
    for locks in [1, 10_000, WAITERS] {
        let mut queue = Queue::of(0);
        for (number, claim) in queue.claims(WAITERS).into_iter().enumerate() {
            let key = format!("door:{}", number % locks).into_bytes();
            let join = JoinRequest { db: 0, key: &key, claim, waiter: WaiterId(0), now: NOW, deadline: None };
            queue.waiting.join(join, usize::MAX, END).expect("a queue without a limit");
        }
        let mut group = criterion.benchmark_group("scan");
        group.bench_function(BenchmarkId::new("longest wait", locks), |bencher| {
            bencher.iter(|| black_box(&queue.waiting).contention());
        });
        group.bench_function(BenchmarkId::new("ten most contended", locks), |bencher| {
            bencher.iter(|| black_box(black_box(&queue.waiting).most_contended(0, 10)));
        });
    }
}

fn uncontended(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("uncontended");
    let token: &[u8] = b"a-81f3d2c7";
    let words: [&[u8]; 4] = [b"PX", b"30000", b"BLOCK", b"20000"];
    group.bench_function("parse", |bencher| bencher.iter(|| Acquire::parse(black_box(words).into_iter())));
    let lease = Lease::from_ms(30_000);
    let free: Lock<'_> = Lock::Free;
    group.bench_function("acquire", |bencher| {
        bencher.iter(|| acquire(black_box(&free), black_box(token), lease, false, NOW));
    });
    let owner = Cow::Borrowed(token);
    let holder = Lock::Held(Holder { kind: Kind::Mutex, owner, holds: 1, lease_end: Some(NOW + 30_000) });
    group.bench_function("release", |bencher| {
        bencher.iter(|| release(black_box(&holder), black_box(token), None, None, NOW));
    });
}

criterion_group!(core, enqueue, cancel, grant, scan, uncontended);
criterion_main!(core);
