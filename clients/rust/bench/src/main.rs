//! Measures redis-lock-client and rslock on one server: `SERVER=... MODULE=... cargo run --release`.
//!
//! rslock does not report a release, so its waiters sleep at random up to a delay, which is set to the least that does not load the
//! server: 10 ms. Its default is 200 ms.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use redis_lock_client::{Locks, redis};
use rslock::LockManager;
use support::{Setup, server_under_test};
use tokio::task::JoinSet;
use tokio::time::sleep;

const LEASE: Duration = Duration::from_secs(10);
const SECONDS: Duration = Duration::from_secs(3);
const HAND_OVERS: u32 = 300;
const TASKS: u32 = 100;

/// A library that is measured.
#[derive(Clone)]
enum Library {
    Client(Locks),
    Rslock(LockManager),
}

/// A lock that is held.
enum Held {
    Client(redis_lock_client::Guard),
    Rslock(rslock::LockGuard),
}

impl Library {
    fn name(&self) -> &'static str {
        match self {
            Self::Client(_) => "redis-lock-client",
            Self::Rslock(_) => "rslock 0.10, 10 ms",
        }
    }

    async fn acquire(&self, name: &str) -> Held {
        match self {
            Self::Client(locks) => Held::Client(locks.lock(name).lease(LEASE).acquire().await.expect("a lock")),
            Self::Rslock(manager) => Held::Rslock(manager.acquire(name, LEASE).await.expect("a lock")),
        }
    }
}

impl Held {
    async fn release(self) {
        match self {
            Self::Client(guard) => guard.release().await.expect("a lock that is held"),
            Self::Rslock(guard) => guard.release().await,
        }
    }
}

/// Returns how many free locks are acquired and released in a second, by some tasks with a lock each.
async fn free_locks(library: &Library, tasks: u32) -> u32 {
    let count = Arc::new(AtomicU32::new(0));
    let mut running = JoinSet::new();
    let end = Instant::now() + SECONDS;
    for task in 0..tasks {
        let (library, count) = (library.clone(), count.clone());
        running.spawn(async move {
            let name = format!("free:{task}");
            while Instant::now() < end {
                library.acquire(&name).await.release().await;
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    running.join_all().await;
    count.load(Ordering::Relaxed) / u32::try_from(SECONDS.as_secs()).expect("a few seconds")
}

/// Returns the median and the 99th percentile of the time from a release to the grant of the task that waits for it.
async fn release_to_grant(holder: &Library, waiter: &Library) -> (Duration, Duration) {
    let mut times = Vec::new();
    for _ in 0..HAND_OVERS {
        let held = holder.acquire("hand-over").await;
        let waiter = waiter.clone();
        let waiting = tokio::spawn(async move {
            let held = waiter.acquire("hand-over").await;
            let granted_at = Instant::now();
            held.release().await;
            granted_at
        });
        sleep(Duration::from_millis(15)).await;
        let released_at = Instant::now();
        held.release().await;
        times.push(waiting.await.expect("no panic").saturating_duration_since(released_at));
    }
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

/// Returns how many acquisitions a second 100 tasks have of one lock, and the longest wait.
async fn one_lock(library: &Library) -> (u32, Duration) {
    let mut running = JoinSet::new();
    let end = Instant::now() + SECONDS;
    for _ in 0..TASKS {
        let library = library.clone();
        running.spawn(async move {
            let (mut count, mut longest) = (0, Duration::ZERO);
            while Instant::now() < end {
                let began_at = Instant::now();
                let held = library.acquire("one").await;
                longest = longest.max(began_at.elapsed());
                count += 1;
                held.release().await;
            }
            (count, longest)
        });
    }
    let results = running.join_all().await;
    let count: u32 = results.iter().map(|result| result.0).sum();
    (count / 3, results.iter().map(|result| result.1).max().expect("some tasks"))
}

#[tokio::main]
async fn main() {
    let server = Setup::new().start();
    let url = format!("redis://127.0.0.1:{}", server.port());
    let connect = async || Locks::new(redis::Client::open(url.as_str()).expect("an address")).await.expect("a server");
    let manager = || {
        let mut manager = LockManager::new(vec![url.as_str()]);
        manager.set_retry(u32::MAX, Duration::from_millis(10));
        manager
    };
    println!("{}, {TASKS} tasks", server_under_test().display());
    println!(
        "| | free lock, 1 task | free locks, 100 tasks | one lock, 100 tasks | longest wait | release to grant, median | 99 % |"
    );
    println!("|---|---|---|---|---|---|---|");
    let libraries = [
        (Library::Client(connect().await), Library::Client(connect().await)),
        (Library::Rslock(manager()), Library::Rslock(manager())),
    ];
    for (library, other) in libraries {
        let (alone, many) = (free_locks(&library, 1).await, free_locks(&library, TASKS).await);
        let (one, longest) = one_lock(&library).await;
        let (median, late) = release_to_grant(&library, &other).await;
        println!("| {} | {alone}/s | {many}/s | {one}/s | {longest:.1?} | {median:.2?} | {late:.2?} |", library.name());
    }
}
