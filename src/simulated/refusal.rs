//! The checks of a command before it runs.

use std::collections::BTreeMap;

use super::cluster;
use super::command::Command;
use super::native;
use super::node_state;
use super::reply::Reply;

/// The commands of the module, by their names.
type Commands = BTreeMap<&'static str, Command>;

/// Returns the error if the server refuses this command.
pub(super) fn refusal(words: &[Vec<u8>]) -> Option<Reply> {
    node_state::with(|node| {
        let keys = keys_of(&node.commands, words);
        if let Some(cluster) = node.cluster.as_ref().filter(|_| !keys.is_empty()) {
            // Shard channels work while the cluster is down, which is the default of the servers.
            let are_channels = words.first().is_some_and(|name| names_channel(name));
            if cluster.is_down && !are_channels {
                return Some(Reply::error("CLUSTERDOWN The cluster is down"));
            }
            let slots: Vec<u8> = keys.iter().map(|key| cluster::slot_of(key)).collect();
            if slots.iter().any(|slot| cluster.elsewhere.contains(slot)) {
                return Some(Reply::error("MOVED 0 127.0.0.1:1"));
            }
            let is_missing = |key: &Vec<u8>| !node.has_key(0, key);
            if !are_channels && slots.iter().any(|slot| cluster.migrating.contains(slot)) && keys.iter().any(is_missing)
            {
                return Some(Reply::error("ASK 0 127.0.0.1:1"));
            }
        }
        let name = words.first()?;
        if !is_write(&node.commands, name) {
            return None;
        }
        if node.blockers.replica {
            return Some(Reply::error("READONLY You can't write against a read only replica."));
        }
        node.blockers.fence.map(|fence| fence.refusal())
    })
}

/// Returns whether a command of the module or of the server writes.
pub(super) fn is_write(commands: &Commands, name: &[u8]) -> bool {
    let module = std::str::from_utf8(name).ok().and_then(|name| commands.get(name.to_ascii_lowercase().as_str()));
    match module {
        Some(command) => command.flags.split(' ').any(|flag| flag == "write"),
        None => native::is_write(name),
    }
}

/// Returns the arguments of a command that are keys.
fn keys_of<'w>(commands: &Commands, words: &'w [Vec<u8>]) -> &'w [Vec<u8>] {
    let name = words.first().map(|name| name.to_ascii_lowercase()).unwrap_or_default();
    match std::str::from_utf8(&name).ok().and_then(|name| commands.get(name)) {
        // A command of the module has one key or none.
        Some(command) if command.keys.first == 0 => &[],
        Some(_) => words.get(1..2).unwrap_or_default(),
        None => native::keys_of(words),
    }
}

/// Returns whether the arguments of a command are channels instead of keys.
fn names_channel(name: &[u8]) -> bool {
    [b"SSUBSCRIBE".as_slice(), b"SUNSUBSCRIBE", b"SPUBLISH"].iter().any(|own| own.eq_ignore_ascii_case(name))
}
