//! The keys of a server at one time, to compare them with its append-only file or a replica.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use support::Reply;

use crate::keys::DATABASES;
use crate::link::Link;
use crate::servers::time_of;

/// Keys that end sooner are left out; those of durability probes do not.
const SOON: Duration = Duration::from_secs(40);

/// Digest of the value and end of each key, by database and name.
pub type Snapshot = BTreeMap<(u32, String), (Reply, Reply)>;

pub fn take(link: &mut Link) -> Option<Snapshot> {
    let mut found = Snapshot::new();
    let soon = time_of(link)? + i64::try_from(SOON.as_millis()).unwrap_or_default();
    for database in 0..DATABASES {
        link.run(&format!("SELECT {database}"));
        let Reply::List(names) = link.run("KEYS *") else { return None };
        for name in names {
            let name = name.string();
            let end = link.run(&format!("PEXPIRETIME {name}"));
            let value = link.run(&format!("DEBUG DIGEST-VALUE {name}"));
            if end == -1 || matches!(end, Reply::Int(at) if at > soon) {
                found.insert((database, name), (value, end));
            }
        }
    }
    Some(found)
}

pub fn differences(one: &Snapshot, other: &Snapshot) -> String {
    let names: BTreeSet<_> = one.keys().chain(other.keys()).collect();
    let both = names.into_iter().map(|name| (name, one.get(name), other.get(name)));
    let different: Vec<_> = both.filter(|(_, one, other)| one != other).take(5).collect();
    format!("{different:?}")
}
