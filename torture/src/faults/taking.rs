//! Writes of other clients that look first: the release of client libraries, which compares the token, the owner or a share that is
//! taken away by hand, and RESTORE of what another lock was.

use std::time::Duration;

use support::Reply;

use crate::link::Link;
use crate::world::World;

const LIMIT: Duration = Duration::from_secs(20);
/// How redis-py and Redlock give back a lock.
const UNLOCK: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// Takes a lock from one who holds it, in the way that fits its layout. None when the connection is closed.
pub fn take_from_holder(world: &World, link: &mut Link, name: &str, random: &mut fastrand::Rng) -> Option<()> {
    let (kind, look, take): (_, _, &[&[u8]]) = match link.run(&format!("TYPE {name}")) {
        reply if reply == "string" => {
            ("EVAL of a library's unlock script", format!("GET {name}"), &[b"EVAL", UNLOCK.as_bytes(), b"1"])
        }
        reply if reply == "hash" => ("HDEL", format!("HKEYS {name}"), &[b"HDEL"]),
        reply if reply == "zset" => ("ZREM of a share", format!("ZRANGE {name} 0 -1"), &[b"ZREM"]),
        Reply::Closed => return None,
        _ => return Some(()),
    };
    let token = match link.run(&look) {
        Reply::Text(token) => token,
        Reply::List(tokens) => match random.choice(tokens) {
            Some(Reply::Text(token)) => token,
            _ => return Some(()),
        },
        Reply::Closed => return None,
        _ => return Some(()),
    };
    link.send_words(&[take, &[name.as_bytes(), &token]].concat())?;
    count(world, kind, &link.receive(LIMIT)?)
}

/// Puts what another lock is in the place of this one.
pub fn restore(world: &World, link: &mut Link, name: &str, other: &str, random: &mut fastrand::Rng) -> Option<()> {
    let dump = match link.run(&format!("DUMP {other}")) {
        Reply::Text(dump) => dump,
        Reply::Closed => return None,
        _ => return Some(()),
    };
    let ms = random.u32(1..60).to_string();
    link.send_words(&[b"RESTORE", name.as_bytes(), ms.as_bytes(), &dump, b"REPLACE"])?;
    count(world, "RESTORE", &link.receive(LIMIT)?)
}

/// Counts what has changed something.
fn count(world: &World, kind: &'static str, reply: &Reply) -> Option<()> {
    if *reply == 1 || *reply == "OK" {
        world.figures.fault(kind);
    }
    (*reply != Reply::Closed).then_some(())
}
