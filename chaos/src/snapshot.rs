//! The keys of a server at one time, to compare them with its append-only file or a replica.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use support::Reply;

use crate::keys::DATABASES;
use crate::link::Link;
use crate::servers::time_of;

/// Keys that end sooner are left out; those of durability probes do not.
const SOON: Duration = Duration::from_secs(40);

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
