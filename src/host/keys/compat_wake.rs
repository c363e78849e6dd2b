//! Wakes those who wait for a lock by the means of another library, when the lock is left free: `lock.wake-foreign`.
//!
//! It does what the release scripts of these libraries do, by the same commands. So blocked clients are served, subscribers of
//! every node are told, and replicas and the AOF get the same, in one transaction with the release.

use std::ffi::CStr;

use super::effects;
use crate::core::{redisson_channel_of, signal_list_of};
use crate::host::state::{self, Key};
use crate::server::{self, OwnedString, StringRef, ValueType};

/// The time for which python-redis-lock keeps a signal that nobody has taken, in milliseconds.
const SIGNAL_MS: &[u8] = b"1000";

/// The message by which Redisson says that a lock is free.
const UNLOCK_MESSAGE: &[u8] = b"0";

/// Deletes the key of a lock that is held alone, and wakes those who wait for a lock of this form.
#[cold]
pub fn free(key: &mut Key<'_, '_>) {
    let form = key.value_type();
    effects::free(key);
    if form == ValueType::Hash { publish(key) } else { signal(key) }
}

/// Wakes those who wait for a lock that is free, and of which nobody knows any more which form it had.
#[cold]
pub fn wake(key: &mut Key<'_, '_>) {
    signal(key);
    publish(key);
}

/// Lets one of python-redis-lock's waiters try again: leaves one signal in the list from which they pop.
fn signal(key: &mut Key<'_, '_>) {
    let Some(list) = signal_list_of(key.name().bytes()).filter(|list| is_in_slot_of(key, list)) else { return };
    let list = OwnedString::new(&list);
    call(key, c"DEL", &[list.as_ref()]);
    call(key, c"LPUSH", &[list.as_ref(), OwnedString::new(b"1").as_ref()]);
    call(key, c"PEXPIRE", &[list.as_ref(), OwnedString::new(SIGNAL_MS).as_ref()]);
}

/// Tells Redisson's waiters. In a cluster they listen on a shard channel, or, those of older versions, on a plain one.
fn publish(key: &mut Key<'_, '_>) {
    let channel = redisson_channel_of(key.name().bytes());
    if !is_in_slot_of(key, &channel) {
        return;
    }
    let (channel, message) = (OwnedString::new(&channel), OwnedString::new(UNLOCK_MESSAGE));
    if server::is_in_cluster() {
        call(key, c"SPUBLISH", &[channel.as_ref(), message.as_ref()]);
    }
    call(key, c"PUBLISH", &[channel.as_ref(), message.as_ref()]);
}

/// Returns whether a script could name both, as those of the libraries do: in a cluster they are in one slot.
fn is_in_slot_of(key: &Key<'_, '_>, other: &[u8]) -> bool {
    !server::is_in_cluster() || server::hash_slot(key.name().bytes()) == server::hash_slot(other)
}

fn call(key: &mut Key<'_, '_>, command: &'static CStr, arguments: &[StringRef<'_>]) {
    if !key.call_alongside(command, arguments) {
        let line = state::with(|state| state.refusals.record_call(command, server::monotonic_ms()));
        if let Some(line) = line {
            key.ctx().warn(&line);
        }
    }
}
