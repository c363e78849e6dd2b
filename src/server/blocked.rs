//! Clients that the server has blocked for a module.
//!
//! They are blocked **on keys**, without a time-out of the server's. Only in that form does the server answer a client
//! that times out in the very round of the loop in which it is unblocked (Redis 7.0 and 7.2 lose the reply or crash
//! otherwise), provide the private data in every callback, and send -MOVED by itself. The module never signals the key,
//! which is not the lock's, but a sibling key in the same slot. It answers a client by [`unblock`], and the server asks
//! [`Module::answer`] for the reply.
//!
//! When that reply is made depends on the server:
//!
//! - Redis 7.0 and 7.2 ask inside `unblock`, and the reply is in the client's buffer at once.
//! - Redis 7.4 and later ask at the end of the loop round. A client that is gone before that was not told.
//! - Valkey and Redict also ask inside `unblock`, but the reply goes to a stand-in client (a "fake client" in the server's
//!   source). It is passed on at the end of the loop round, right after the module is told to free the client. A client
//!   that is gone by then was not told.
//!
//! The layer above learns only whether the client may have been told.

use std::ffi::{c_int, c_void};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{mem, ptr};

use redis_module::raw;

use super::blocked_client::{BlockedClient, BlockedClientId};
use super::context::{Context, ContextFlags};
use super::hash_slot::sibling_key;
use super::key::Key;
use super::module::Module;
use super::panics::catch_panic;
use super::reply::Replier;
use super::string::OwnedString;

const OK: c_int = raw::REDISMODULE_OK as c_int;
const ERR: c_int = raw::REDISMODULE_ERR as c_int;

/// Whether the server makes the reply of a blocked client through a stand-in client.
static FAKE_CLIENT: AtomicBool = AtomicBool::new(false);

impl<M: Module> Key<'_, '_, M> {
    /// Blocks the client that sent this command, until [`unblock`]. The command must not reply then.
    ///
    /// Returns `None` if the client cannot be blocked: outside of a command, a second time in one command, and in a
    /// transaction or a script. Valkey also does not block a client that has subscribed to a channel.
    pub fn block(&mut self, id: BlockedClientId) -> Option<BlockedClient> {
        // In a transaction the server would reply by itself, and keep a handle that nobody frees.
        if !self.ctx().may_block || self.ctx().flags().contains(ContextFlags::DENY_BLOCKING) {
            return None;
        }
        // Whenever a key becomes a Sorted Set or a List, the server goes through all clients that are blocked on it, as if for
        // BZPOPMIN: at each hand-over of a shared lock, in a time that grows with the line.
        let sibling = OwnedString::new(&sibling_key(self.name().bytes(), b"\0waits"));
        let mut keys = [sibling.as_ref().raw()];
        let (on_signal, on_unblocked) = (Some(on_signal as _), Some(on_unblocked::<M> as _));
        // SAFETY: context and key are valid while this command runs, and the server keeps neither array nor context;
        // the private data is a number. The callbacks have the signatures the API asks for.
        let handle = unsafe {
            let handle = api!(RedisModule_BlockClientOnKeys(
                self.ctx_mut().raw(),
                on_signal,
                on_unblocked,
                Some(on_freed::<M>),
                0,
                keys.as_mut_ptr(),
                1,
                to_private_data(id),
            ));
            if !handle.is_null() {
                api!(RedisModule_SetDisconnectCallback(handle, Some(on_disconnect::<M>)));
            }
            handle
        };
        if handle.is_null() {
            return None;
        }
        self.ctx_mut().may_block = false;
        Some(BlockedClient { handle, answered: false })
    }
}

/// Unblocks a client. The server asks [`Module::answer`] for the reply, perhaps inside this call.
///
/// Has no effect if the client was unblocked or freed before.
pub fn unblock<M: Module>(id: BlockedClientId) {
    let handle = with_client::<M, _>(id, |client| client.handle).unwrap_or(ptr::null_mut());
    if !handle.is_null() {
        // SAFETY: the server has not freed the blocked client, or `on_freed` would have taken the handle away; the
        // server ignores a second call.
        unsafe { api!(RedisModule_UnblockClient(handle, ptr::null_mut())) };
    }
}

/// Sets whether the server replies through a stand-in client. Called when the module is loaded.
pub(super) fn set_replies_by_fake_client(fake_client: bool) {
    FAKE_CLIENT.store(fake_client, Ordering::Relaxed);
}

fn with_client<M: Module, R>(id: BlockedClientId, body: impl FnOnce(&mut BlockedClient) -> R) -> Option<R> {
    M::state().with(|state| M::blocked_client(state, id).map(body))
}

/// Handles a signal of the key, which somebody else's write has caused. Clients are not served this way.
unsafe extern "C" fn on_signal(
    _ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    ERR
}

/// Replies to a client that was unblocked, by the module or by CLIENT UNBLOCK. Some servers call this inside `unblock`.
unsafe extern "C" fn on_unblocked<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    let answer = || {
        // SAFETY: the server's own context for this callback.
        let ctx = unsafe { Context::new(ctx) };
        let id = private_data(&ctx);
        // Redis 7.0 and 7.2 ask once more when CLIENT UNBLOCK follows in the same loop round.
        let again = with_client::<M, _>(id, |client| mem::replace(&mut client.answered, true));
        if again != Some(true) {
            M::answer(&mut Replier::new(ctx), id);
        }
        true
    };
    if !catch_panic("unblock", false, answer) {
        // To reply is the last that an answer does, so there is none yet.
        // SAFETY: as above.
        Replier::new(unsafe { Context::new(ctx) }).internal_error();
    }
    OK
}

/// Handles the end of a wait without a call of `on_unblocked`: the client is gone, or the server has answered it by
/// itself.
unsafe extern "C" fn on_disconnect<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    _handle: *mut raw::RedisModuleBlockedClient,
) {
    catch_panic("disconnect", (), || {
        // SAFETY: the server's own context for this callback.
        let ctx = unsafe { Context::new(ctx) };
        let id = private_data(&ctx);
        let replied = with_client::<M, _>(id, |client| client.answered).unwrap_or(false);
        M::disconnected(&ctx, id, replied);
    });
}

/// Handles the end of a blocked client.
///
/// That the client is gone means something only if the reply went to a stand-in client. Elsewhere the reply may have
/// been sent.
unsafe extern "C" fn on_freed<M: Module>(ctx: *mut raw::RedisModuleCtx, private: *mut c_void) {
    let id = from_private_data(private);
    // On its own: whatever else goes wrong, the handle must not be used again.
    let answered = catch_panic("end of a handle", None, || {
        with_client::<M, _>(id, |client| {
            client.handle = ptr::null_mut();
            client.answered
        })
    });
    catch_panic("free", (), || {
        // SAFETY: the server's own context for this callback.
        let is_gone = unsafe { api!(RedisModule_BlockedClientDisconnected(ctx)) } != 0;
        let kept_back = is_gone && FAKE_CLIENT.load(Ordering::Relaxed);
        // SAFETY: as above.
        M::freed(&unsafe { Context::new(ctx) }, id, answered.unwrap_or(false) && !kept_back);
    });
}

fn private_data<M>(ctx: &Context<'_, M>) -> BlockedClientId {
    // SAFETY: only called in callbacks of a blocked client, where the context knows its private data.
    from_private_data(unsafe { api!(RedisModule_GetBlockedClientPrivateData(ctx.raw())) })
}

/// Returns the id as the pointer-sized number that the server keeps. It is never null, which the server would not
/// free.
fn to_private_data(id: BlockedClientId) -> *mut c_void {
    ptr::without_provenance_mut(id.0.get() as usize)
}

fn from_private_data(private: *mut c_void) -> BlockedClientId {
    BlockedClientId(NonZeroU64::new(private.addr() as u64).unwrap_or(NonZeroU64::MIN))
}
