//! The core by itself: what a step of the waiting line takes with 100 and with 100,000 in it, and the pure parts of a
//! request that finds the lock free. `cargo bench -p bench --bench core`.

use std::borrow::Cow;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use redis_lock::command::{Acquire, LockCommand};
use redis_lock::core::{
    Claim, EndReason, Holder, JoinRequest, Kind, Lease, Lock, RequestId, SlowLogLimits, UnixMs, WaitEnd, WaitQueues,
    WaiterId, acquire, release,
};

const LENGTHS: [usize; 2] = [100, 100_000];
const KEY: &[u8] = b"door";
const NOW: UnixMs = 1_700_000_000_000;
/// The end of the waits, which were too short for the slow log.
const END: WaitEnd =
    WaitEnd { reason: EndReason::Granted, now: NOW, limits: SlowLogLimits { min_wait_ms: 1000, max_len: 128 } };
/// Steps between two looks at the clock, as a part of the line: enough to be timed, few enough to leave it as it was.
const BATCH: usize = 10;

/// A line of waiters for one lock, each with a token and a deadline of its own.
struct Line {
    waiting: WaitQueues,
    requests: Vec<RequestId>,
    joined: u64,
}

impl Line {
    fn of(length: usize) -> Self {
        let mut line = Self { waiting: WaitQueues::new(), requests: Vec::new(), joined: 0 };
        let claims = line.claims(length);
        line.join(claims);
        line
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
            self.requests.push(self.waiting.join(join, usize::MAX).expect("room without end").request);
            self.joined += 1;
        }
    }

    /// Takes requests out of the list, though not out of the line, from all over it.
    fn pick(&mut self, count: usize) -> Vec<RequestId> {
        const STRIDE: usize = 7919;
        (0..count).map(|pick| self.requests.swap_remove(pick * STRIDE % self.requests.len())).collect()
    }

    fn leave(&mut self, requests: Vec<RequestId>) {
        for request in requests {
            black_box(self.waiting.withdraw_request(request, None, END));
        }
    }

    fn grant(&mut self, count: usize) {
        let queue = self.waiting.queue_of(0, KEY).expect("a line");
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

/// Measures a step that is done `count` times to a line; `batch` says how long it took, and has put the line right.
fn steps(criterion: &mut Criterion, name: &str, batch: fn(&mut Line, usize) -> Duration) {
    let mut group = criterion.benchmark_group(name);
    for length in LENGTHS {
        let mut line = Line::of(length);
        group.bench_function(BenchmarkId::from_parameter(length), |bencher| {
            bencher.iter_custom(|count| {
                let mut left = usize::try_from(count).expect("a count in memory");
                let mut taken = Duration::ZERO;
                while left > 0 {
                    let now = left.min(length / BATCH);
                    taken += batch(&mut line, now);
                    left -= now;
                }
                taken
            });
        });
    }
}

fn enqueue(criterion: &mut Criterion) {
    steps(criterion, "enqueue", |line, count| {
        let claims = line.claims(count);
        let taken = timed(|| line.join(claims));
        let last = line.requests.split_off(line.requests.len() - count);
        line.leave(last);
        taken
    });
}

fn cancel(criterion: &mut Criterion) {
    steps(criterion, "cancel", |line, count| {
        let picked = line.pick(count);
        let taken = timed(|| line.leave(picked));
        let claims = line.claims(count);
        line.join(claims);
        taken
    });
}

fn grant(criterion: &mut Criterion) {
    steps(criterion, "grant", |line, count| {
        let taken = timed(|| line.grant(count));
        line.requests.clear();
        let claims = line.claims(count);
        line.join(claims);
        taken
    });
}

/// What INFO and LOCK.QUEUES ask, of 100,000 who wait for so many locks.
fn look(criterion: &mut Criterion) {
    const WAITERS: usize = 100_000;
    for locks in [1, 10_000, WAITERS] {
        let mut line = Line::of(0);
        for (number, claim) in line.claims(WAITERS).into_iter().enumerate() {
            let key = format!("door:{}", number % locks).into_bytes();
            let join = JoinRequest { db: 0, key: &key, claim, waiter: WaiterId(0), now: NOW, deadline: None };
            line.waiting.join(join, usize::MAX).expect("room without end");
        }
        let mut group = criterion.benchmark_group("look");
        group.bench_function(BenchmarkId::new("longest wait", locks), |bencher| {
            bencher.iter(|| black_box(&line.waiting).contention());
        });
        group.bench_function(BenchmarkId::new("ten most contended", locks), |bencher| {
            bencher.iter(|| black_box(black_box(&line.waiting).most_contended(0, 10)));
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

criterion_group!(core, enqueue, cancel, grant, look, uncontended);
criterion_main!(core);
