//! What the server's calls and events mean for locks.

use std::ffi::CStr;
use std::rc::Rc;

use super::background;
use super::clients::WaitState;
use super::commands;
use super::grants;
use super::info;
use super::settings::SETTINGS;
use super::state::{self, Context, Locks, STATE, State};
use super::timer;
use crate::core::{Cause, ClientId, SessionId, Sessions, UnixMs};
use crate::server::{
    self, BlockedClient, BlockedClientId, Command, EventName, MainThread, Module, Replier, Setting, StringRef,
};

impl Module for Locks {
    const NAME: &'static CStr = c"lock";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    // SET, HSET, PEXPIREAT and DEL are replicated; EXISTS, SETRANGE and HDEL are probes.
    const NEEDED_COMMANDS: &'static [&'static CStr] =
        &[c"SET", c"HSET", c"PEXPIREAT", c"DEL", c"EXISTS", c"SETRANGE", c"HDEL"];
    const SETTINGS: &'static [&'static Setting] = SETTINGS;

    type State = State;

    #[inline(always)]
    fn state() -> &'static MainThread<State> {
        &STATE
    }

    fn new_state() -> State {
        State::new()
    }

    fn blocked_client(state: &mut State, client: BlockedClientId) -> Option<&mut BlockedClient> {
        state.blocked.get_mut(grants::blocked_id_of(client))?.handle.as_mut()
    }

    fn commands() -> Vec<Command> {
        commands::commands()
    }

    fn info(state: &mut State) -> Vec<(String, u64)> {
        info::fields(state)
    }

    /// Warns of an eviction policy that may evict locks, which are keys with an expiry time.
    fn loaded(ctx: &mut Context<'_>) {
        let policy = ctx.server_info(c"memory", c"maxmemory_policy");
        if let Some(policy) = policy.filter(|policy| policy != "noeviction") {
            let line =
                format!("maxmemory-policy is {policy}: the server may evict a lock that is held; use noeviction");
            ctx.warn(&line);
        }
    }

    fn may_unload(state: &mut State) -> Result<(), &'static str> {
        if state.has_owners() { Err("locks belong to connections (lock_sessions in INFO lock)") } else { Ok(()) }
    }

    fn timer(ctx: &mut Context<'_>) {
        background::run(ctx);
    }

    /// Stalls are detected while there is nothing to do, too: the first work after one may follow at once.
    fn cron(interval_ms: i64) {
        state::with(|state| state.stall.cron(server::monotonic_ms(), interval_ms));
    }

    fn key_event(ctx: &Context<'_>, event: EventName<'_>, key: StringRef<'_>) {
        planted!(WorkInEvent => server::work_now::<Locks>());
        planted!(WorkBehindEvent => server::work_behind_event::<Locks>());
        planted!(DelIsUnheard => if event.bytes() == b"del" { return });
        planted!(EvictionIsUnheard => if event.bytes() == b"evicted" { return });
        planted!(RestoreIsUnheard => if event.bytes() == b"restore" { return });
        // The common case first.
        if state::with(|state| state.is_idle()) {
            return;
        }
        let (db, key) = (ctx.db(), key.bytes());
        let (queue, session) = state::with(|state| (state.waiting.queue_of(db, key), state.sessions.find(db, key)));
        if queue.is_none() && session.is_none() {
            return; // No lock with a queue or a session, like most keys.
        }
        let (event, now) = (event.bytes(), server::now_ms());
        state::with(|state| {
            if let Some(session) = session {
                update_session_on_event(&mut state.sessions, session, event, now);
            }
            if let Some(queue) = queue {
                state.waiting.review_soon(queue, cause_of(event));
            }
        });
        timer::set();
    }

    /// Waiters and sessions keep the number of their database.
    fn keyspace_changed() {
        check_all_locks();
    }

    fn role_changed() {
        state::with(State::clear_master_state);
        check_all_locks();
    }

    fn client_closed(client: ClientId) {
        planted!(CloseIsUnheard => return);
        state::with(|state| state.sessions.connection_closed(client));
        timer::set();
    }

    fn answer(reply: &mut Replier<'_>, client: BlockedClientId) {
        let id = grants::blocked_id_of(client);
        planted!(ToldTwice => reply.nil());
        grants::leave(id);
        let wait_state = state::with(|state| state.blocked.get(id).map(|entry| entry.wait_state()));
        match wait_state {
            // A waiter is granted its first hold.
            Some(WaitState::Granted(_)) if !planted!(GrantedNil) => reply.integer(1),
            _ => reply.nil(),
        }
    }

    fn left(_ctx: &Context<'_>, client: BlockedClientId, told: bool) {
        let id = grants::blocked_id_of(client);
        grants::leave(id);
        grants::finish_delivery(id, told);
        timer::set();
    }

    fn freed(_ctx: &Context<'_>, client: BlockedClientId, told: bool) {
        let id = grants::blocked_id_of(client);
        grants::leave(id);
        grants::finish_delivery(id, told);
        let overdue = state::with(|state| {
            state.blocked.remove(id);
            !state.revocations.is_empty()
        });
        if overdue {
            timer::set();
        }
    }
}

/// Schedules a check of every lock, since any may have changed. The timer runs it in batches.
fn check_all_locks() {
    state::with(|state| {
        planted!(ReloadEndsSessions => state.sessions.end_all());
        state.sessions.check_all();
        planted!(FlushForgetsWaiters => return);
        state.waiting.review_all();
    });
    timer::set();
}

/// Updates a session after an event of its key. A lease that has ended by itself is no loss: the session takes the lock
/// back.
fn update_session_on_event(sessions: &mut Sessions, id: SessionId, event: &[u8], now: UnixMs) {
    let Some(session) = sessions.get(id) else { return };
    planted!(LeaseOfOthersEndsSession => if LEASE_CHANGES.contains(&event) {
        let (db, key) = (session.lock.db, Rc::clone(&session.lock.key));
        return sessions.end(db, &key);
    });
    // Valkey also calls it `expired` when a command has set the lease into the past.
    if event == b"expired" && (session.has_lapsed(now) || planted!(PastIsExpiry)) {
        sessions.lease_expired(id);
    } else if LEASE_CHANGES.contains(&event) {
        sessions.lease_changed(id);
    } else if event == b"expired" || REPLACEMENTS.contains(&event) {
        let (db, key) = (session.lock.db, Rc::clone(&session.lock.key));
        sessions.end(db, &key);
    }
}

/// The events of foreign commands that set or remove a lease.
const LEASE_CHANGES: [&[u8]; 2] = [b"expire", b"persist"];

/// The events by which a key is deleted or replaced, other than its expiry.
const REPLACEMENTS: [&[u8]; 8] =
    [b"del", b"evicted", b"move_from", b"rename_from", b"move_to", b"rename_to", b"copy_to", b"restore"];

fn cause_of(event: &[u8]) -> Cause {
    match event {
        b"expired" => Cause::Expiry,
        b"del" => Cause::Delete,
        _ => Cause::Other,
    }
}
