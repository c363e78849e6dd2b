//! When all clients have gone: nothing of them is left, and the append-only file says what the server says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use support::Reply;

use crate::clock;
use crate::keys::DATABASES;
use crate::link::Link;
use crate::world::World;

/// Above the longest lease, and what a long stall just before the end explains.
const SETTLING: Duration = Duration::from_secs(6);
/// What tables that have grown, and pools, take when everybody has gone.
const BYTES_KEPT: i64 = 512 << 10;
/// What the server counts as used that belongs to connections, replicas and files.
const BUFFERS: [&str; 5] = [
    "mem_clients_normal",
    "mem_clients_slaves",
    "mem_total_replication_buffers",
    "mem_aof_buffer",
    "mem_cluster_links",
];
/// What is of the run, but not of locks: keys, the figures of commands, slow ones, scripts.
const CLEANING: [&str; 6] = ["FLUSHALL", "CONFIG RESETSTAT", "SLOWLOG RESET", "LATENCY RESET", "SCRIPT FLUSH", OFTEN];
/// The server's cron, which gives back what was kept for clients that wait, some at a time, runs as often as it can.
const OFTEN: &str = "CONFIG SET hz 500";

/// What keys of one database hold, by name.
pub type Snapshot = BTreeMap<(u32, String), (Reply, Reply)>;

/// Makes the checks of the end; None when the server is gone, or something is wrong already.
pub fn check(world: &World, appends: bool, memory_before: i64) -> Option<()> {
    let mut link = world.connect(0, false)?;
    for setting in ["lock.max-lease-ms", "lock.recovery-ms"] {
        link.run(&format!("CONFIG SET {setting} 0"));
    }
    if text(&mut link, "commandstats", "cmdstat_lpush").is_some() {
        world.figures.met("signals to those who wait with python-redis-lock");
    }
    let links: Option<Vec<Link>> = (0..DATABASES).map(|database| world.connect(database, false)).collect();
    settle(world, &mut links?)?;
    if appends {
        compare_with_file(world, &mut link)?;
    }
    check_memory(world, &mut link, memory_before)
}

/// No more memory is used than before the run.
fn check_memory(world: &World, link: &mut Link, before: i64) -> Option<()> {
    for line in CLEANING {
        link.run(line);
    }
    let (mut used, mut least, mut since) = (memory_of_locks(link)?, i64::MAX, Instant::now());
    while used > before + BYTES_KEPT {
        if used < least {
            (least, since) = (used, Instant::now());
        }
        if since.elapsed() > SETTLING {
            let text =
                format!("{used} bytes are used beside buffers, after {before} before the run, and no key is left");
            world.court.charge("nothing is left behind", text);
            return None;
        }
        sleep(Duration::from_millis(50));
        used = memory_of_locks(link)?;
    }
    world.figures.memory_kept.store(used - before, Ordering::Relaxed);
    Some(())
}

/// What the server uses beside buffers, of connections and others.
pub fn memory_of_locks(link: &mut Link) -> Option<i64> {
    let Reply::Text(text) = link.run("INFO memory") else { return None };
    let text = String::from_utf8_lossy(&text);
    let figure = |name| field(&text, name)?.parse::<i64>().ok();
    Some(figure("used_memory")? - BUFFERS.into_iter().filter_map(figure).sum::<i64>())
}

/// What INFO says in a field; None when it has no such number.
pub fn figure(link: &mut Link, section: &str, name: &str) -> Option<i64> {
    text(link, section, name)?.parse().ok()
}

/// What INFO says in a field; None when it has none.
pub fn text(link: &mut Link, section: &str, name: &str) -> Option<String> {
    let Reply::Text(text) = link.run(&format!("INFO {section}")) else { return None };
    field(&String::from_utf8_lossy(&text), name).map(str::to_owned)
}

fn field<'t>(info: &'t str, name: &str) -> Option<&'t str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// Notes how often each server has handed over a lock so far.
pub fn count_handovers(world: &World) {
    for database in 0..if world.in_cluster() { DATABASES } else { 1 } {
        let Some(mut link) = world.connect(database, false) else { return };
        let count = figure(&mut link, "lock", "lock_granted_after_waiting").and_then(|count| u64::try_from(count).ok());
        if let (Some(server), Some(count)) = (text(&mut link, "server", "run_id"), count) {
            world.figures.handovers.saw(server, count);
        }
    }
}

pub fn used_memory(link: &mut Link) -> Option<i64> {
    figure(link, "memory", "used_memory")
}

/// Asks for a new append-only file. It is refused while one is being written, and then the old one stays stale.
pub fn rewrite_file(world: &World, link: &mut Link) -> Reply {
    let reply = link.run("BGREWRITEAOF");
    if matches!(reply, Reply::Status(_)) {
        world.file_is_stale.store(false, Ordering::SeqCst);
    }
    reply
}

/// Waits until the append-only file has nothing but what the server has.
fn wait_for_file(world: &World, link: &mut Link) -> Option<()> {
    let begun = Instant::now();
    while begun.elapsed() < SETTLING {
        let fields = ["aof_rewrite_in_progress", "aof_rewrite_scheduled"];
        let [running, scheduled] = fields.map(|name| figure(link, "persistence", name));
        if running? + scheduled? > 0 {
            sleep(Duration::from_millis(10));
        } else if world.file_is_stale.load(Ordering::SeqCst) {
            rewrite_file(world, link);
        } else {
            return Some(());
        }
    }
    world.court.charge("the server writes its append-only file", format!("not within {SETTLING:?}"));
    None
}

/// Nobody waits, no session is open, and every strict lock is free.
fn settle(world: &World, links: &mut [Link]) -> Option<()> {
    let begun = Instant::now();
    let mut left = what_is_left(world, links)?;
    while !left.is_empty() {
        if begun.elapsed() > SETTLING {
            world.court.charge("nothing is left behind", format!("after all clients have gone there are {left}"));
            return None;
        }
        sleep(Duration::from_millis(50));
        left = what_is_left(world, links)?;
    }
    Some(())
}

/// In words, empty if there is nothing. There is a connection for each database.
fn what_is_left(world: &World, links: &mut [Link]) -> Option<String> {
    let mut left = Vec::new();
    for link in &mut *links {
        for name in ["lock_waiters", "lock_sessions"] {
            let count = figure(link, "lock", name)?;
            if count != 0 {
                left.push(format!("{name}: {count}"));
            }
        }
    }
    for key in world.keys.all().iter().filter(|key| key.is_strict()) {
        let link = &mut links[key.database as usize];
        let info = link.run(&format!("LOCK.INFO {}", key.name));
        if info == Reply::Closed {
            return None;
        }
        if !matches!(info, Reply::List(_)) || info.get("state") != "free" {
            left.push(format!("{} in database {}: {info:?}", key.name, key.database));
        }
    }
    Some(left.join(", "))
}

/// The server that loads its file has the same keys as before.
fn compare_with_file(world: &World, link: &mut Link) -> Option<()> {
    wait_for_file(world, link)?;
    leave_locks(world, link)?;
    let before = snapshot(link)?;
    let loaded = link.run("DEBUG LOADAOF");
    let after = snapshot(link)?;
    if loaded != "OK" || before != after {
        let text =
            format!("DEBUG LOADAOF: {loaded:?}; keys that differ, before and after: {}", differences(&before, &after));
        world.court.charge("the append-only file has the same locks", text);
        return None;
    }
    Some(())
}

/// Some of the keys that differ, with what they are on either side.
pub fn differences(one: &Snapshot, other: &Snapshot) -> String {
    let names: BTreeSet<_> = one.keys().chain(other.keys()).collect();
    let both = names.into_iter().map(|name| (name, one.get(name), other.get(name)));
    let different: Vec<_> = both.filter(|(_, one, other)| one != other).take(5).collect();
    format!("{different:?}")
}

/// Locks that are held for long, some of them handed over, so that there is something to compare.
pub fn leave_locks(world: &World, link: &mut Link) -> Option<()> {
    link.run("SELECT 0");
    let mut other = world.connect(0, false)?;
    for number in 0..20 {
        let (first, second) = (world.mint.fresh(), world.mint.fresh());
        let name = format!("left{number}.{first}");
        let command = ["LOCK.ACQUIRE", "LOCK.REENTER", "LOCK.SHARE"][number % 3];
        link.run(&format!("{command} {name} {first} PX 600000"));
        other.send(&[format!("{command} {name} {second} PX {} BLOCK 5000", 700_000 + number)])?;
        if number % 5 == 0 {
            link.run(&format!("LOCK.EXTEND {name} {first} PX 900000"));
        }
        // Those who share a lock may go on together, for different times.
        if number % 2 == 0 || command != "LOCK.SHARE" {
            link.run(&format!("LOCK.RELEASE {name} {first}"));
        }
        other.receive(SETTLING)?;
        if number % 4 == 0 {
            other.run(&format!("LOCK.EXTEND {name} {second} PX 800000"));
        }
    }
    Some(())
}

/// All keys that do not end soon, with their values and their ends.
pub fn snapshot(link: &mut Link) -> Option<Snapshot> {
    let mut found = Snapshot::new();
    let soon = clock::time_of(link)? + 60_000;
    for database in 0..4 {
        link.run(&format!("SELECT {database}"));
        let Reply::List(names) = link.run("KEYS *") else { return None };
        for name in names {
            let name = name.string();
            let (value, end) = content(link, &name);
            if end == -1 || matches!(end, Reply::Int(at) if at > soon) {
                found.insert((database, name), (value, end));
            }
        }
    }
    Some(found)
}

/// The value of a key and the time at which it ends.
pub fn content(link: &mut Link, name: &str) -> (Reply, Reply) {
    let end = link.run(&format!("PEXPIRETIME {name}"));
    (value(link, name), end)
}

fn value(link: &mut Link, name: &str) -> Reply {
    match link.run(&format!("TYPE {name}")) {
        kind if kind == "string" => link.run(&format!("GET {name}")),
        kind if kind == "hash" => link.run(&format!("HGETALL {name}")),
        kind if kind == "list" => link.run(&format!("LRANGE {name} 0 -1")),
        kind if kind == "zset" => link.run(&format!("ZRANGE {name} 0 -1 WITHSCORES")),
        kind => kind,
    }
}
