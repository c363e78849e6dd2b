//! Commands of the server that a module has it carry out.

use std::ffi::CStr;

use super::cluster::slot_of;
use super::crash::crash;
use super::journal::Note;
use super::key::Key;
use super::native;
use super::string::StringRef;
use super::world::{self, World};

impl<M> Key<'_, '_, M> {
    /// Has the server carry out a command that concerns another key, or none, while this one is open. Returns whether it has.
    pub fn call_beside(&mut self, command: &CStr, arguments: &[StringRef<'_>]) -> bool {
        let (db, own) = (self.ctx().db(), self.name().bytes());
        let Some(about) = arguments.first() else { return false };
        let objection = world::with(|world| {
            let in_cluster = world.cluster.is_some();
            let own_accord = world.running.command.is_none();
            world
                .obstacles
                .objection(world.now_ms())
                .filter(|_| own_accord)
                .or((about.bytes() == own).then_some("a command about a key that is open"))
                .or((in_cluster && slot_of(about.bytes()) != slot_of(own)).then_some("a command about another slot"))
                .or(world.running.callback.then_some("a command in an event"))
        });
        if let Some(objection) = objection {
            crash(objection);
        }
        if [c"PUBLISH", c"SPUBLISH"].contains(&command) {
            let message = arguments.get(1).map_or(&[][..], |message| message.bytes());
            // Nobody subscribes to these channels here, and replicas of a node do not tell of them.
            let command = if command == c"PUBLISH" { "PUBLISH" } else { "SPUBLISH" };
            let (channel, message) = (about.bytes().into(), message.into());
            world::with(|world| world.note(Note::Announced { command, channel, message }));
            return true;
        }
        let is_leaving = |world: &World| {
            let is_there = world.keyspace.get(db, about.bytes()).is_some();
            !is_there
                && world.cluster.as_ref().is_some_and(|cluster| cluster.migrating.contains(&slot_of(about.bytes())))
        };
        if world::with(|world| is_leaving(world)) {
            return false; // It may be at the other node.
        }
        let words = [command.to_bytes()].into_iter().chain(arguments.iter().map(|argument| argument.bytes()));
        let words: Vec<Vec<u8>> = words.map(<[u8]>::to_vec).collect();
        native::run(db, &words).is_some()
    }
}
