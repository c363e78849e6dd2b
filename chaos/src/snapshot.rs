//! The keys of a server at one time, to compare them with its append-only file or a replica.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use support::Reply;

use crate::keys::DATABASES;
use crate::link::{Link, PATIENCE};
use crate::run::Run;
use crate::servers::time_of;

/// Keys that end sooner are left out.
const SOON: Duration = Duration::from_secs(60);

/// Value and end of each key, by database and name.
pub type Snapshot = BTreeMap<(u32, String), (Reply, Reply)>;

/// Returns all keys that do not end soon.
pub fn take(link: &mut Link) -> Option<Snapshot> {
    let mut found = Snapshot::new();
    let soon = time_of(link)? + i64::try_from(SOON.as_millis()).unwrap_or_default();
    for database in 0..DATABASES {
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
    let value = match link.run(&format!("TYPE {name}")) {
        kind if kind == "string" => link.run(&format!("GET {name}")),
        kind if kind == "hash" => link.run(&format!("HGETALL {name}")),
        kind if kind == "list" => link.run(&format!("LRANGE {name} 0 -1")),
        kind if kind == "zset" => link.run(&format!("ZRANGE {name} 0 -1 WITHSCORES")),
        kind => kind,
    };
    (value, end)
}

/// Some of the keys that differ, as they are on either side.
pub fn differences(one: &Snapshot, other: &Snapshot) -> String {
    let names: BTreeSet<_> = one.keys().chain(other.keys()).collect();
    let both = names.into_iter().map(|name| (name, one.get(name), other.get(name)));
    let different: Vec<_> = both.filter(|(_, one, other)| one != other).take(5).collect();
    format!("{different:?}")
}

/// Takes locks with long leases, some of them by waiting, so that there is something to compare.
pub fn take_locks(run: &Run, link: &mut Link) -> Option<()> {
    link.run("SELECT 0");
    let mut other = run.connect(0, false)?;
    for number in 0..20 {
        let (first, second) = (run.tokens.fresh(), run.tokens.fresh());
        let name = format!("left{number}.{first}");
        let command = ["LOCK.ACQUIRE", "LOCK.REENTER", "LOCK.SHARE"][number % 3];
        link.run(&format!("{command} {name} {first} PX 600000"));
        other.send(&[format!("{command} {name} {second} PX {} BLOCK 5000", 700_000 + number)])?;
        if number % 5 == 0 {
            link.run(&format!("LOCK.EXTEND {name} {first} PX 900000"));
        }
        // Shares can have different leases.
        if number % 2 == 0 || command != "LOCK.SHARE" {
            link.run(&format!("LOCK.RELEASE {name} {first}"));
        }
        other.receive(PATIENCE)?;
        if number % 4 == 0 {
            other.run(&format!("LOCK.EXTEND {name} {second} PX 800000"));
        }
    }
    Some(())
}
