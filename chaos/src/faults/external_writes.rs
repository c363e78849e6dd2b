//! Writes of other clients that depend on the state of a lock: the release of client libraries, which compares the
//! token, the owner or a share that is removed manually, and RESTORE of the state of another lock.

use support::Reply;

use crate::link::Link;
use crate::run::Run;

/// How redis-py and Redlock release a lock.
const UNLOCK: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// Takes a lock from a holder, in the way that fits its layout. `None` if the connection is closed.
pub fn take_from_holder(run: &Run, link: &mut Link, name: &str, random: &mut fastrand::Rng) -> Option<()> {
    let (kind, read, write): (_, _, &[&[u8]]) = match link.run(&format!("TYPE {name}")) {
        reply if reply == "string" => {
            ("EVAL of the unlock script of a library", format!("GET {name}"), &[b"EVAL", UNLOCK.as_bytes(), b"1"])
        }
        reply if reply == "hash" => ("HDEL", format!("HKEYS {name}"), &[b"HDEL"]),
        reply if reply == "zset" => ("ZREM of a share", format!("ZRANGE {name} 0 -1"), &[b"ZREM"]),
        Reply::Closed => return None,
        _ => return Some(()),
    };
    let token = match link.run(&read) {
        Reply::List(tokens) => random.choice(tokens).unwrap_or(Reply::Nil),
        reply => reply,
    };
    match token {
        Reply::Text(token) => count(run, kind, &link.call(&[write, &[name.as_bytes(), &token]].concat())),
        Reply::Closed => None,
        _ => Some(()),
    }
}

/// Puts the state of another lock into this key.
pub fn restore(run: &Run, link: &mut Link, name: &str, other: &str, random: &mut fastrand::Rng) -> Option<()> {
    let dump = match link.run(&format!("DUMP {other}")) {
        Reply::Text(dump) => dump,
        Reply::Closed => return None,
        _ => return Some(()),
    };
    let ms = random.u32(1..60).to_string();
    count(run, "RESTORE", &link.call(&[b"RESTORE", name.as_bytes(), ms.as_bytes(), &dump, b"REPLACE"]))
}

/// Counts a write that has changed something.
fn count(run: &Run, kind: &'static str, reply: &Reply) -> Option<()> {
    if *reply == 1 || *reply == "OK" {
        run.counters.count(kind);
    }
    (*reply != Reply::Closed).then_some(())
}
