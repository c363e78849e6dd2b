//! The checks at the end of a run, when all clients have gone: nothing of them is left, and the append-only file has
//! the keys of the server.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use support::Reply;

use crate::durability::Probe;
use crate::keys::DATABASES;
use crate::link::Link;
use crate::report::Rule;
use crate::run::Run;
use crate::scenario::Scenario;
use crate::snapshot;

/// Above the longest lease, and what a long stall just before the end explains.
const SETTLING: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(50);
/// The memory that pools and tables that have grown keep.
const BYTES_KEPT: i64 = 512 << 10;
/// The part of the used memory that belongs to connections, replicas and files.
const BUFFERS: [&str; 5] = [
    "mem_clients_normal",
    "mem_clients_slaves",
    "mem_total_replication_buffers",
    "mem_aof_buffer",
    "mem_cluster_links",
];
/// Removes what belongs to the run, but not to locks: keys, statistics, slow commands, scripts. The cron of the server,
/// which gives back memory of blocked clients in small steps, then runs as often as it can.
const CLEANING: [&str; 6] =
    ["FLUSHALL", "CONFIG RESETSTAT", "SLOWLOG RESET", "LATENCY RESET", "SCRIPT FLUSH", "CONFIG SET hz 500"];
pub const REWRITING: [&str; 2] = ["aof_rewrite_in_progress", "aof_rewrite_scheduled"];
const NOTHING_LEFT: &str = "nothing is left behind";

/// Makes the checks of the end; `None` if the server is gone, or something is wrong already.
pub fn check(run: &Run, memory_before: i64) -> Option<()> {
    let mut link = run.connect(0, false)?;
    for setting in ["lock.max-lease-ms", "lock.recovery-ms"] {
        link.run(&format!("CONFIG SET {setting} 0"));
    }
    if link.info("commandstats", "cmdstat_lpush").is_some() {
        run.counters.count("signals to waiters of python-redis-lock");
    }
    let mut links: Vec<Link> = (0..DATABASES).map(|database| run.connect(database, false)).collect::<Option<_>>()?;
    settle(run, NOTHING_LEFT, || what_is_left(run, &mut links))?;
    if run.settings.appends {
        compare_with_file(run, &mut link)?;
    }
    CLEANING.iter().for_each(|line| drop(link.run(line)));
    settle(run, NOTHING_LEFT, || {
        let used = memory_of_locks(&mut link)?;
        let is_kept = used > memory_before + BYTES_KEPT;
        Some(if is_kept { format!("{used} bytes, {memory_before} before the run") } else { String::new() })
    })?;
    run.counters.raise("bytes kept", memory_of_locks(&mut link)? - memory_before);
    Some(())
}

/// Waits until nothing is left of what this returns in words.
fn settle(run: &Run, rule: Rule, mut left: impl FnMut() -> Option<String>) -> Option<()> {
    let begun = Instant::now();
    loop {
        let left = left()?;
        if left.is_empty() {
            return Some(());
        }
        if begun.elapsed() > SETTLING {
            run.fails(rule, format!("after all clients have gone: {left}"));
            return None;
        }
        sleep(POLL);
    }
}

pub fn memory_of_locks(link: &mut Link) -> Option<i64> {
    let used = link.number("memory", "used_memory")?;
    Some(used - BUFFERS.into_iter().filter_map(|name| link.number("memory", name)).sum::<i64>())
}

pub fn count_handovers(run: &Run) {
    let count = run.connect(0, false).and_then(|mut link| link.number("lock", "lock_granted_after_waiting"));
    run.counters.raise("hand-overs", count.unwrap_or_default());
}

/// Asks for a new append-only file. It is refused while one is being written, and then the old one stays stale.
pub fn rewrite_file(run: &Run, link: &mut Link) -> Reply {
    let reply = link.run("BGREWRITEAOF");
    if matches!(reply, Reply::Status(_)) {
        run.file_is_stale.store(false, Ordering::SeqCst);
    }
    reply
}

/// Returns in words all that is left: requests that wait, sessions, and strict locks that are held. There is a
/// connection for each database.
fn what_is_left(run: &Run, links: &mut [Link]) -> Option<String> {
    let mut left = Vec::new();
    for link in &mut *links {
        // Entries of clients that have disconnected are kept for the grace period, which is short in a soak.
        let contended = run.is(Scenario::Soak).then_some("lock_contended_locks");
        for name in ["lock_waiters", "lock_waiters_notified", "lock_sessions"].into_iter().chain(contended) {
            let count = link.number("lock", name)?;
            left.extend((count != 0).then(|| format!("{name}: {count}")));
        }
    }
    for key in run.keys.all().iter().filter(|key| key.is_strict) {
        let info = links[key.database as usize].run(&format!("LOCK.INFO {}", key.name));
        (info != Reply::Closed).then_some(())?;
        let is_held = !matches!(info, Reply::List(_)) || info.get("state") != "free";
        left.extend(is_held.then(|| format!("{} in database {}: {info:?}", key.name, key.database)));
    }
    Some(left.join(", "))
}

fn compare_with_file(run: &Run, link: &mut Link) -> Option<()> {
    settle(run, "the server writes its append-only file", || {
        let [running, scheduled] = REWRITING.map(|name| link.number("persistence", name));
        let (is_busy, is_stale) = (running? + scheduled? > 0, run.file_is_stale.load(Ordering::SeqCst));
        if is_stale && !is_busy {
            rewrite_file(run, link);
        }
        Some(if is_busy || is_stale { "a file that is stale".to_owned() } else { String::new() })
    })?;
    let _locks = Probe::take(run, 0, &mut fastrand::Rng::with_seed(0))?;
    let before = snapshot::take(link)?;
    let loaded = link.run("DEBUG LOADAOF");
    let after = snapshot::take(link)?;
    if loaded != "OK" || before != after {
        let differences = snapshot::differences(&before, &after);
        let text = format!("DEBUG LOADAOF: {loaded:?}; keys that differ, before and after: {differences}");
        run.fails("the append-only file has the same locks", text);
        return None;
    }
    Some(())
}
