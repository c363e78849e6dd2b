//! How keys expire: when somebody looks at them, and in the server's cycle.

use std::rc::Rc;

use super::doors;
use super::journal::{Note, Writer};
use super::stream::Effect;
use super::world;

/// Deletes a key that has expired, on a master that is not paused. Returns whether there is a key to be seen.
pub(super) fn expire(db: i32, key: &[u8]) -> bool {
    let (is_visible, is_deletable) = world::with(|world| {
        let now = world.now_ms();
        let entry = world.keyspace.get(db, key);
        let is_over = entry.is_some_and(|entry| entry.is_over(world.time_of_keys())) && !world.running.replay;
        (entry.is_some() && !is_over, is_over && !world.obstacles.replica && !world.obstacles.is_paused(now))
    });
    if is_deletable {
        delete(db, key);
    }
    is_visible
}

/// The server's cycle: looks at the keys that expire, as many as it gets to. It goes on through a table of its own while it
/// tells of each key that it deletes.
pub(super) fn cycle(limit: usize) {
    let due: Vec<(i32, Rc<[u8]>)> = world::with(|world| {
        let now = world.now_ms();
        if world.obstacles.replica || world.obstacles.is_paused(now) {
            return Vec::new();
        }
        let now = if world.kind.cycle_is_early() { now.saturating_add(1) } else { now };
        let due = world.keyspace.all().filter(|(_, _, entry)| entry.is_over(now));
        due.take(limit).map(|(db, key, _)| (db, Rc::clone(key))).collect()
    });
    world::with(|world| world.running.scan = true);
    for (db, key) in due {
        delete(db, &key);
        world::with(|world| world.propagate());
    }
    world::with(|world| world.running.scan = false);
}

fn delete(db: i32, key: &[u8]) {
    world::with(|world| {
        world.keyspace.set(db, key, None);
        world.unit.push(Effect::new(db, [b"DEL".as_slice(), key]));
        world.note(Note::Wrote { db, key: key.into(), entry: None, writer: Writer::Expiry });
    });
    doors::tell(|doors| (doors.key_event)(db, "expired", key));
}
