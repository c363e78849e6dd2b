//! The checks of a request before its key is opened: what the connection may do here.

use crate::core::Error;
use crate::host::state::Context;
use crate::server::{Arguments, ContextFlags, StringRef};

/// Checks that a session can begin here: the request has a connection, so it is not in a script or in a call by another module,
/// and the server is not a replica, even one that accepts writes of clients.
#[cold]
pub fn check_session_here(ctx: &Context<'_>) -> Result<(), Error> {
    if !ctx.has_connection() {
        return Err(Error::SessionInScript);
    }
    if ctx.flags().contains(ContextFlags::REPLICA) { Err(Error::SessionOnReplica) } else { Ok(()) }
}

/// Checks that a request can wait for a message: it has a connection, its token is one word, and an ACL selector of its user
/// allows the channel, the command and the key together.
#[cold]
pub fn check_notify_here(
    ctx: &Context<'_>,
    caller: &[u8],
    arguments: Arguments<'_>,
    channel: StringRef<'_>,
) -> Result<(), Error> {
    if !ctx.has_connection() {
        return Err(Error::NotifyInScript);
    }
    if caller.contains(&b' ') {
        return Err(Error::TokenWithSpace);
    }
    if ctx.may_publish_with(arguments, channel) { Ok(()) } else { Err(Error::NoRightToChannel) }
}
