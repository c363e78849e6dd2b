//! The checks of a request before its key is opened: what the connection may do here.

use crate::core::Error;
use crate::host::state::Context;
use crate::server::{Arguments, ContextFlags, StringRef};

/// Checks that a session can begin here.
///
/// # Errors
///
/// [`Error::SessionInScript`] if the request has no connection: in a script, or in a call by another module.
/// [`Error::SessionOnReplica`] on a replica, even if it accepts writes of clients.
#[cold]
pub fn check_session_here(ctx: &Context<'_>) -> Result<(), Error> {
    if !ctx.has_connection() {
        return Err(Error::SessionInScript);
    }
    if ctx.flags().contains(ContextFlags::REPLICA) { Err(Error::SessionOnReplica) } else { Ok(()) }
}

/// Checks that a request can wait for a message.
///
/// # Errors
///
/// [`Error::NotifyInScript`] if the request has no connection, [`Error::TokenWithSpace`] if its token is not one word, and
/// [`Error::NoRightToChannel`] if no ACL selector of its user allows the channel, the command and the key together.
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
