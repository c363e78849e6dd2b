//! Wakes the waiters of compatible lock libraries when a lock becomes free: `lock.wake-foreign`.
//!
//! It runs the commands that the release scripts of these libraries run. So the server wakes blocked clients, sends the message
//! to the subscribers on every node, and replicates the commands, in one transaction with the release.

use std::ffi::CStr;

use super::effects;
use crate::core::{redisson_channel_of, signal_list_of};
use crate::host::state::Key;
use crate::server::{self, OwnedString, StringRef, ValueType};

/// Deletes the key of a lock that is held alone, and wakes the compatible waiters for a lock of this type.
#[cold]
pub fn free(key: &mut Key<'_, '_>) {
    let form = key.value_type();
    debug_assert!(matches!(form, ValueType::String | ValueType::Hash), "the lock is not held alone");
    effects::free(key);
    if form == ValueType::Hash { publish(key) } else { signal(key) }
}

/// Wakes the compatible waiters for a free lock whose last type is unknown.
#[cold]
pub fn wake(key: &mut Key<'_, '_>) {
    debug_assert!(key.is_empty(), "the lock is held");
    signal(key);
    publish(key);
}

/// Lets one waiter of python-redis-lock try again: leaves one signal for a second in the list that the waiters pop.
fn signal(key: &mut Key<'_, '_>) {
    let Some(list) = signal_list_of(key.name().bytes()).filter(|list| is_in_slot_of(key, list)) else { return };
    let list = OwnedString::new(&list);
    call(key, c"DEL", &[list.as_ref()]);
    call(key, c"LPUSH", &[list.as_ref(), OwnedString::new(b"1").as_ref()]);
    call(key, c"PEXPIRE", &[list.as_ref(), OwnedString::new(b"1000").as_ref()]);
}

/// Publishes to the waiters of Redisson. In a cluster they subscribe to a shard channel, older versions to a plain channel.
fn publish(key: &mut Key<'_, '_>) {
    let channel = redisson_channel_of(key.name().bytes());
    if !is_in_slot_of(key, &channel) {
        return;
    }
    let (channel, message) = (OwnedString::new(&channel), OwnedString::new(b"0"));
    if server::is_in_cluster() {
        call(key, c"SPUBLISH", &[channel.as_ref(), message.as_ref()]);
    }
    call(key, c"PUBLISH", &[channel.as_ref(), message.as_ref()]);
}

/// Returns whether one script can use both names, as the scripts of the libraries do: in a cluster this requires one slot.
fn is_in_slot_of(key: &Key<'_, '_>, other: &[u8]) -> bool {
    !server::is_in_cluster() || server::hash_slot(key.name().bytes()) == server::hash_slot(other)
}

/// Runs a command, and logs a refusal. The command does not use the key of the lock, which is open.
fn call(key: &mut Key<'_, '_>, command: &'static CStr, arguments: &[StringRef<'_>]) {
    debug_assert!(arguments.first().is_some_and(|it| it.bytes() != key.name().bytes()), "the key is open");
    if !key.call_alongside(command, arguments) {
        if let Some(line) = key.with_state(|state| state.refusals.record_call(command, server::monotonic_ms())) {
            key.ctx().warn(&line);
        }
    }
}
