//! Blocks and unblocks clients, and handles what the server reports about them.

use std::ffi::{c_int, c_void};
use std::num::NonZeroU64;
use std::{mem, ptr};

use redis_module::raw;

use super::{BlockedClient, BlockedClientId};
use crate::server::api::{ERR, OK};
use crate::server::context::{Context, ContextFlags};
use crate::server::hash_slot::sibling_key;
use crate::server::key::Key;
use crate::server::module::Module;
use crate::server::panics::catch_panic;
use crate::server::reply::Replier;
use crate::server::right::Server;
use crate::server::state::state;
use crate::server::string::OwnedString;

impl<M: Module> Key<'_, '_, M> {
    /// Blocks the client that sent this command, until [`unblock`]. The command must not reply then. `id` must not be the number
    /// of another client that is blocked.
    ///
    /// Returns `None` if the client cannot be blocked: outside of a command, a second time in one command, and in a
    /// transaction or a script. Valkey also does not block a client that has subscribed to a channel.
    pub fn block(&mut self, id: BlockedClientId) -> Option<BlockedClient> {
        // In a transaction the server would reply by itself, and keep a handle that is never freed.
        if !self.ctx().may_block || self.ctx().flags().contains(ContextFlags::DENY_BLOCKING) {
            return None;
        }
        // Whenever a key becomes a Sorted Set or a List, the server goes through all clients that are blocked on it, as if for
        // BZPOPMIN. With the key itself, that would take a time that grows with the queue.
        let sibling = OwnedString::new(&sibling_key(self.name().bytes(), b"\0waits"));
        let (ctx, private, mut keys) =
            (self.ctx().raw(), ptr::without_provenance_mut(id.0.get() as usize), [sibling.as_ref().raw()]);
        let (on_signal, on_unblocked, on_freed) =
            (Some(on_signal as _), Some(on_unblocked::<M> as _), Some(on_freed::<M> as _));
        // SAFETY: context and key are valid while this command runs, and the server keeps neither array nor context;
        // the private data is a number. The callbacks have the signatures the API asks for.
        let handle = unsafe {
            let keys = keys.as_mut_ptr();
            let handle =
                api!(RedisModule_BlockClientOnKeys(ctx, on_signal, on_unblocked, on_freed, 0, keys, 1, private));
            if handle.is_null() {
                return None;
            }
            api!(RedisModule_SetDisconnectCallback(handle, Some(on_disconnect::<M>)));
            handle
        };
        self.ctx.may_block = false;
        Some(BlockedClient { handle, has_reply: false })
    }
}

/// Unblocks a client. The server asks [`Module::answer`] for the reply, on some servers inside this call.
///
/// Has no effect if the client was unblocked or freed before.
pub fn unblock<M: Module>(server: &mut Server, id: BlockedClientId) {
    // The module may have forgotten the client after a panic.
    let handle = with_client::<M, _>(server, id, |client| client.handle).unwrap_or(ptr::null_mut());
    if !handle.is_null() {
        // SAFETY: the server has not freed the blocked client, or `on_freed` would have set the handle to null; the server
        // ignores a second call.
        let result = unsafe { api!(RedisModule_UnblockClient(handle, ptr::null_mut())) };
        debug_assert_eq!(result, OK, "the server refuses to unblock a client");
    }
}

fn with_client<M: Module, R>(
    server: &Server,
    id: BlockedClientId,
    body: impl FnOnce(&mut BlockedClient) -> R,
) -> Option<R> {
    M::state().with(server, |state| M::blocked_client(state, id).map(body))
}

/// Handles a signal of the key, which an external write has caused. It unblocks no client.
unsafe extern "C" fn on_signal(_: *mut raw::RedisModuleCtx, _: *mut *mut raw::RedisModuleString, _: c_int) -> c_int {
    ERR
}

/// Replies to a client that was unblocked, by the module or by CLIENT UNBLOCK. Some servers call this inside `unblock`.
unsafe extern "C" fn on_unblocked<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    let answer = |server: &Server| {
        // SAFETY: the server's own context for this callback.
        let ctx = unsafe { Context::new(ctx) };
        let id = private_data(&ctx);
        // Redis 7.0 and 7.2 ask again when CLIENT UNBLOCK follows in the same event-loop iteration.
        let again = with_client::<M, _>(server, id, |client| mem::replace(&mut client.has_reply, true));
        if again != Some(true) {
            M::answer(&mut Replier(ctx), id);
        }
        true
    };
    if !catch_panic("unblock", false, answer) {
        // The module replies last, so it has not replied if it has panicked.
        // SAFETY: as above.
        Replier(unsafe { Context::new(ctx) }).internal_error();
    }
    OK
}

/// Handles the end of a wait without a call of `on_unblocked`: the client has disconnected, or the server has replied by itself.
unsafe extern "C" fn on_disconnect<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    _handle: *mut raw::RedisModuleBlockedClient,
) {
    catch_panic("disconnect", (), |server| {
        // SAFETY: the server's own context for this callback.
        let ctx = unsafe { Context::new(ctx) };
        let id = private_data(&ctx);
        // A client that the module has forgotten after a panic has got no reply.
        let has_reply = with_client::<M, _>(server, id, |client| client.has_reply).unwrap_or(false);
        M::disconnected(&ctx, id, has_reply);
    });
}

/// Handles the end of a blocked client.
///
/// A client that has disconnected has got no reply if the reply went to a stand-in client. On other servers it may have got one.
unsafe extern "C" fn on_freed<M: Module>(ctx: *mut raw::RedisModuleCtx, private: *mut c_void) {
    let id = from_private_data(private);
    // The handle must not be used again, also if the rest of this function panics.
    let has_reply = catch_panic("end of a handle", None, |server| {
        with_client::<M, _>(server, id, |client| {
            client.handle = ptr::null_mut();
            client.has_reply
        })
    });
    catch_panic("free", (), |_| {
        // SAFETY: the server's own context for this callback.
        let is_disconnected = unsafe { api!(RedisModule_BlockedClientDisconnected(ctx)) } != 0;
        let is_lost = is_disconnected && state().uses_stand_in.get();
        // SAFETY: as above.
        M::freed(&unsafe { Context::new(ctx) }, id, has_reply.unwrap_or(false) && !is_lost);
    });
}

fn private_data<M>(ctx: &Context<'_, M>) -> BlockedClientId {
    // SAFETY: only called in callbacks of a blocked client, whose context has the private data.
    from_private_data(unsafe { api!(RedisModule_GetBlockedClientPrivateData(ctx.raw())) })
}

fn from_private_data(private: *mut c_void) -> BlockedClientId {
    // The server passes the number of an id, which is not null.
    BlockedClientId(NonZeroU64::new(private.addr() as u64).unwrap_or(NonZeroU64::MIN))
}
