//! The expiry of keys: when a command reads or writes them, and in the server's expiry cycle.

use std::rc::Rc;

use super::event_log::{LoggedEvent, Writer};
use super::faults::{self, Fault};
use super::node_state;
use super::notify;
use super::stream::Effect;

/// Deletes a key that has expired, on a master that is not paused. Returns whether the key exists for the caller.
pub(super) fn expire(db: i32, key: &[u8]) -> bool {
    let (is_visible, is_deletable) = node_state::with(|node| {
        let now = node.now_ms();
        let entry = node.keyspace.get(db, key);
        let is_over = entry.is_some_and(|entry| entry.is_over(node.time_of_keys())) && !node.running.replay;
        (entry.is_some() && !is_over, is_over && !node.blockers.replica && !node.blockers.is_paused(now))
    });
    if is_deletable {
        delete(db, key);
    }
    is_visible
}

/// Runs the server's expiry cycle, which deletes up to `limit` expired keys. The cycle scans a hash table while it notifies the
/// module of each deleted key, so the module must not open a key then.
pub(super) fn cycle(limit: usize) {
    let due: Vec<(i32, Rc<[u8]>)> = node_state::with(|node| {
        let now = node.now_ms();
        if node.blockers.replica || node.blockers.is_paused(now) {
            return Vec::new();
        }
        let now = if node.kind.cycle_is_early() { now.saturating_add(1) } else { now };
        let due = node.keyspace.all().filter(|(_, _, entry)| entry.is_over(now));
        due.take(limit).map(|(db, key, _)| (db, Rc::clone(key))).collect()
    });
    node_state::with(|node| node.running.scan = true);
    for (db, key) in due {
        delete(db, &key);
        node_state::with(|node| node.propagate());
    }
    node_state::with(|node| node.running.scan = false);
}

fn delete(db: i32, key: &[u8]) {
    node_state::with(|node| {
        node.keyspace.set(db, key, None);
        if !faults::has(Fault::ExpiryNotReplicated) {
            node.unit.push(Effect::new(db, [b"DEL".as_slice(), key]));
        }
        node.note(LoggedEvent::Wrote { db, key: key.into(), entry: None, writer: Writer::Expiry });
    });
    notify::key_event(db, "expired", key);
}
