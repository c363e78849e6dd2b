//! Measures redis-lock-client, rslock and what a program would write itself, on one server: `SERVER=... MODULE=... cargo run --release`.
//! With the name of a library and a number of tasks it only acquires and releases 20,000 free locks, for a profiler.
//!
//! The libraries take turns of a second, because the load of a machine changes; a figure is the median of its turns.
//!
//! rslock does not report a release, so its waiters sleep at random up to a delay, which is set to the least that does not load the
//! server: 10 ms. Its default is 200 ms.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use redis_lock_client::redis::aio::MultiplexedConnection;
use redis_lock_client::{Locks, redis};
use rslock::LockManager;
use support::{Setup, server_under_test};
use tokio::task::JoinSet;
use tokio::time::sleep;

const LEASE: Duration = Duration::from_secs(10);
const TURN: Duration = Duration::from_secs(1);
const TURNS: usize = 7;
const PROFILED: u32 = 20_000;
const HAND_OVERS: u32 = 300;
const TASKS: u32 = 100;

/// Deletes a key if it has a value.
const UNLOCK: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

/// A library that is measured.
#[derive(Clone)]
enum Library {
    Client(Locks),
    Rslock(LockManager),
    /// SET NX and a script; it does not wait.
    Handwritten(MultiplexedConnection, Arc<redis::Script>),
}

/// A lock that is held.
enum Held {
    Client(redis_lock_client::Guard),
    Rslock(rslock::LockGuard),
    Handwritten(MultiplexedConnection, Arc<redis::Script>, String, String),
}

impl Library {
    fn name(&self) -> &'static str {
        match self {
            Self::Client(_) => "redis-lock-client",
            Self::Rslock(_) => "rslock 0.10, 10 ms",
            Self::Handwritten(..) => "SET NX and a script",
        }
    }

    async fn acquire(&self, name: &str) -> Held {
        match self {
            Self::Client(locks) => Held::Client(locks.lock(name).lease(LEASE).acquire().await.expect("a lock")),
            Self::Rslock(manager) => Held::Rslock(manager.acquire(name, LEASE).await.expect("a lock")),
            Self::Handwritten(connection, script) => {
                let mut connection = connection.clone();
                let token = format!("{:032x}", getrandom::u64().expect("random numbers"));
                let mut set = redis::cmd("SET");
                set.arg(name).arg(&token).arg("NX").arg("PX").arg(LEASE.as_secs() * 1000);
                set.exec_async(&mut connection).await.expect("a server");
                Held::Handwritten(connection, script.clone(), name.to_owned(), token)
            }
        }
    }
}

impl Held {
    async fn release(self) {
        match self {
            Self::Client(guard) => guard.release().await.expect("a lock that is held"),
            Self::Rslock(guard) => guard.release().await,
            Self::Handwritten(mut connection, script, name, token) => {
                let freed = script.key(name).arg(token).invoke_async::<i64>(&mut connection).await;
                assert_eq!(freed.expect("a server"), 1);
            }
        }
    }
}

/// Returns how many free locks are acquired and released in a second, by some tasks with a lock each, or how many of a number
/// are.
async fn free_locks(library: &Library, tasks: u32, number: u32) -> u32 {
    let count = Arc::new(AtomicU32::new(0));
    let mut running = JoinSet::new();
    let end = Instant::now() + if number == u32::MAX { TURN } else { TURN * 60 };
    for task in 0..tasks {
        let (library, count) = (library.clone(), count.clone());
        running.spawn(async move {
            let name = format!("free:{task}");
            while Instant::now() < end && count.fetch_add(1, Ordering::Relaxed) < number {
                library.acquire(&name).await.release().await;
            }
        });
    }
    running.join_all().await;
    count.load(Ordering::Relaxed)
}

/// Returns the median of the turns of each library.
async fn in_turns(libraries: &[Library], tasks: u32) -> Vec<u32> {
    let mut figures = vec![Vec::new(); libraries.len()];
    for _ in 0..TURNS {
        for (library, figures) in libraries.iter().zip(&mut figures) {
            figures.push(free_locks(library, tasks, u32::MAX).await);
        }
    }
    figures.iter_mut().for_each(|figures| figures.sort_unstable());
    figures.iter().map(|figures| figures[TURNS / 2]).collect()
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
    let end = Instant::now() + TURN * 3;
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
    let connection = async || {
        let client = redis::Client::open(url.as_str()).expect("an address");
        client.get_multiplexed_async_connection().await.expect("a server")
    };
    let script = Arc::new(redis::Script::new(UNLOCK));
    let libraries = [
        Library::Client(connect().await),
        Library::Rslock(manager()),
        Library::Handwritten(connection().await, script),
    ];
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [name, tasks] = arguments.as_slice() {
        let library = libraries.iter().find(|library| library.name().starts_with(name.as_str())).expect("a library");
        free_locks(library, tasks.parse().expect("a number of tasks"), PROFILED).await;
        return;
    }
    println!("{}, medians of {TURNS} turns of {TURN:?}", server_under_test().display());
    println!("| | free lock, 1 task | free locks, {TASKS} tasks |");
    println!("|---|---|---|");
    let (alone, many) = (in_turns(&libraries, 1).await, in_turns(&libraries, TASKS).await);
    for (library, (alone, many)) in libraries.iter().zip(alone.into_iter().zip(many)) {
        println!("| {} | {alone}/s | {many}/s |", library.name());
    }
    println!("\n| | one lock, {TASKS} tasks | longest wait | release to grant, median | 99 % |");
    println!("|---|---|---|---|---|");
    let others = [Library::Client(connect().await), Library::Rslock(manager())];
    for (library, other) in libraries.iter().zip(&others) {
        let (one, longest) = one_lock(library).await;
        let (median, late) = release_to_grant(library, other).await;
        println!("| {} | {one}/s | {longest:.1?} | {median:.2?} | {late:.2?} |", library.name());
    }
}
