//! Calls of the server's commands by the module.

use std::ffi::CStr;

use super::cluster::slot_of;
use super::crash::crash;
use super::event_log::LoggedEvent;
use super::faults::{self, Fault};
use super::key::Key;
use super::native;
use super::node_state::{self, NodeState};
use super::string::StringRef;

impl<M> Key<'_, '_, M> {
    /// Runs a command of the server on another key, or on no key, while this key is open. Returns whether the command has run.
    pub fn call_alongside(&mut self, command: &CStr, arguments: &[StringRef<'_>]) -> bool {
        let (db, own) = (self.ctx().db(), self.name().bytes());
        let Some(about) = arguments.first() else { return false };
        let objection = node_state::with(|node| {
            let in_cluster = node.cluster.is_some();
            let own_accord = node.running.command.is_none();
            node.blockers
                .objection(node.now_ms())
                .filter(|_| own_accord)
                .or((about.bytes() == own).then_some("a command about a key that is open"))
                .or((in_cluster && slot_of(about.bytes()) != slot_of(own)).then_some("a command about another slot"))
                .or(node.running.callback.then_some("a command in an event"))
        });
        if let Some(objection) = objection {
            crash(objection);
        }
        if faults::has(Fault::CallIgnored) {
            return true;
        }
        if [c"PUBLISH", c"SPUBLISH"].contains(&command) {
            let message = arguments.get(1).map_or(&[][..], |message| message.bytes());
            // No simulated client subscribes to these channels, and the replicas of a node do not pass the messages on.
            let command = if command == c"PUBLISH" { "PUBLISH" } else { "SPUBLISH" };
            let (channel, message) = (about.bytes().into(), message.into());
            node_state::with(|node| node.note(LoggedEvent::Announced { command, channel, message }));
            return true;
        }
        let is_leaving = |node: &NodeState| {
            let is_there = node.keyspace.get(db, about.bytes()).is_some();
            !is_there
                && node.cluster.as_ref().is_some_and(|cluster| cluster.migrating.contains(&slot_of(about.bytes())))
        };
        if node_state::with(|node| is_leaving(node)) {
            return false; // It may be at the other node.
        }
        let words = [command.to_bytes()].into_iter().chain(arguments.iter().map(|argument| argument.bytes()));
        let words: Vec<Vec<u8>> = words.map(<[u8]>::to_vec).collect();
        native::run(db, &words).is_some()
    }
}
