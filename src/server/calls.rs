//! Commands of the server that a module has it carry out.

use std::ffi::CStr;

use redis_module::raw;

use super::key::Key;
use super::permission::was_executed;
use super::string::StringRef;

impl<M> Key<'_, '_, M> {
    /// Has the server carry out a command that concerns another key of the selected database, or a channel, its first
    /// argument, while this one is open. It has the effects that it has in a script: its events, its replication, and clients
    /// that it wakes. Nobody's rights are asked for.
    ///
    /// Returns whether the server has executed it. It has not if `rename-command` has changed its name, or, in a cluster, if
    /// this node does not serve the slot.
    ///
    /// It belongs where the module may write at all.
    pub fn call_alongside(&mut self, command: &CStr, arguments: &[StringRef<'_>]) -> bool {
        if arguments.first().is_some_and(|concerned| concerned.bytes() == self.name().bytes()) {
            return false; // What is known of the open key would not be so any more.
        }
        let arguments: Vec<*mut raw::RedisModuleString> = arguments.iter().map(|argument| argument.raw()).collect();
        let (start, len) = (arguments.as_ptr(), arguments.len());
        // SAFETY: the context is valid while the key is open, and so are the strings during the call; "!" takes nothing, "v"
        // an array of strings and their number.
        let reply = unsafe { api!(RedisModule_Call(self.ctx().raw(), command.as_ptr(), c"!v".as_ptr(), start, len)) };
        was_executed(reply)
    }
}
