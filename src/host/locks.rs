//! Implements the server's callbacks for locks.

use std::ffi::CStr;

use super::alarm;
use super::conditions::suspension;
use super::settings::{self, SETTINGS, SLOWLOG_MAX_LEN};
use super::state::pending_replies::WaitState;
use super::state::{self, Context, Locks, STATE, State};
use super::work::{restart_after_panic, run};
use super::{commands::table::COMMANDS, info_section, load_log, replies::delivery};
use crate::core::limits::MAX_BATCH;
use crate::core::{self, Cause, ClientId, Error, HoldId, RecordId};
use crate::server::{
    self, BlockedClient, BlockedClientId, Command, MainThread, Module, Replier, Server, Setting, StringRef,
};

impl Module for Locks {
    const NAME: &'static CStr = c"lock";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    // The module replicates some of these commands, and uses the others as probes.
    const NEEDED_COMMANDS: &'static [&'static CStr] = &[
        c"SET",
        c"HSET",
        c"ZADD",
        c"ZREM",
        c"PEXPIREAT",
        c"PERSIST",
        c"DEL",
        c"EXISTS",
        c"SETRANGE",
        c"HDEL",
        c"ZREMRANGEBYRANK",
        c"PUBSUB",
    ];
    const NEEDED_IN_CLUSTER: &'static [&'static CStr] = &[c"CLUSTER"];
    const COMMANDS: &'static [Command] = COMMANDS;

    type State = State;

    #[inline(always)]
    fn state() -> &'static MainThread<State> {
        &STATE
    }

    fn settings() -> &'static [&'static Setting] {
        SETTINGS
    }

    fn new_state() -> State {
        State::new()
    }

    fn blocked_client(state: &mut State, client: BlockedClientId) -> Option<&mut BlockedClient> {
        state.pending.get_mut(delivery::pending_id_of(client))?.handle()
    }

    fn info(state: &mut State) -> Vec<(String, u64)> {
        info_section::fields(state)
    }

    fn info_words(state: &mut State) -> Vec<(&'static CStr, &'static CStr)> {
        vec![(c"suspended_by", info_section::suspended_by(state))]
    }

    /// Begins a recovery period if the server is starting.
    fn loaded(ctx: &mut Context<'_>) {
        if ctx.is_starting() {
            suspension::begin(ctx.server());
        }
        suspension::update_suspension_soon(ctx.server());
        load_log::log(ctx);
    }

    fn may_unload(state: &mut State) -> Result<(), &'static str> {
        if state.has_owners() {
            return Err("there are sessions (lock_sessions in INFO lock)");
        }
        if state.grants_suspended_ms() > 0 {
            return Err(
                "grants are suspended, which a module loaded now would not know (lock_recovery_ms in INFO lock)",
            );
        }
        if state.locks.waiter_count() > 0 { Err("requests are waiting (lock_waiters in INFO lock)") } else { Ok(()) }
    }

    fn panicked(_server: &Server) {
        restart_after_panic::begin_soon();
    }

    /// A setting may have ended a suspension or begun one, or may have made the slow log shorter.
    fn setting_changed(server: &Server) {
        state::with(server, |state| state.locks.slow_log.truncate(settings::limit(&SLOWLOG_MAX_LEN)));
        suspension::update_suspension_soon(server);
    }

    fn timer(ctx: &mut Context<'_>) {
        run::run(ctx);
    }

    /// Stalls are detected while there is no work, too: work may come right after a stall.
    fn cron(server: &Server, interval_ms: i64) {
        state::with(server, |state| state.stall.cron(server::monotonic_ms(), interval_ms));
    }

    fn key_event(ctx: &Context<'_>, event: &[u8], key: StringRef<'_>) {
        // The common case first.
        if ctx.with_state(|state| state.is_idle()) {
            return;
        }
        let (db, key) = (ctx.db(), key.bytes());
        let is_concerned = ctx.with_state(|State { locks, .. }| {
            let Some(record) = locks.record_of(db, key) else { return false };
            if let Some(session) = locks.session_of(record, None) {
                update_session_on_event(locks, session, event);
            }
            if locks.has_shares(record) {
                update_shares_on_event(locks, record, event);
            }
            locks.review_soon(record, cause_of(event));
            true
        });
        if is_concerned {
            alarm::set(ctx.server());
        }
    }

    /// Waiters and sessions keep the number of their database.
    fn keyspace_changed(server: &Server) {
        check_all_locks(server);
    }

    fn role_changed(server: &Server, is_master: bool) {
        if is_master {
            suspension::begin(server);
        }
        state::with(server, |state| {
            state.clear_master_state();
            state.pending.abort_all();
        });
        check_all_locks(server);
    }

    fn client_closed(server: &Server, client: ClientId) {
        let now = server::now_ms();
        state::with(server, |state| {
            state.locks.connection_closed(client, now);
            state.pending.connection_closed(client, now);
        });
        run::end_closed(server);
        alarm::set(server);
    }

    fn answer(reply: &mut Replier<'_>, client: BlockedClientId) {
        let id = delivery::pending_id_of(client);
        delivery::withdraw_request(reply.server(), id);
        alarm::set(reply.server());
        let wait_state = state::with(reply.server(), |state| state.pending.get(id).map(|entry| entry.wait_state()));
        debug_assert!(wait_state.is_some(), "a blocked client is pending until it is freed");
        debug_assert!(!matches!(wait_state, Some(WaitState::Waiting(_))), "a client that is answered waits no more");
        match wait_state {
            // A waiter is granted its first hold.
            Some(WaitState::Granted(_)) => reply.integer(1),
            Some(WaitState::Replaced) => reply.error(&Error::Replaced.text("")),
            Some(WaitState::Failed) => reply.internal_error(),
            _ => reply.nil(),
        }
    }

    fn disconnected(ctx: &Context<'_>, client: BlockedClientId, replied: bool) {
        let id = delivery::pending_id_of(client);
        delivery::withdraw_request(ctx.server(), id);
        delivery::finish_delivery(ctx.server(), id, replied);
        alarm::set(ctx.server());
    }

    fn freed(ctx: &Context<'_>, client: BlockedClientId, replied: bool) {
        Self::disconnected(ctx, client, replied);
        let id = delivery::pending_id_of(client);
        ctx.with_state(|state| {
            let before = state.pending.get(id).map(|entry| entry.wait_state());
            debug_assert!(
                matches!(before, Some(WaitState::Ended | WaitState::Replaced | WaitState::Failed)),
                "its wait has ended"
            );
            state.pending.remove(id);
        });
    }
}

/// Schedules a check of every lock, because any may have changed. The timer runs it in batches.
fn check_all_locks(server: &Server) {
    state::with(server, |state| {
        state.locks.check_all();
        state.locks.review_all();
    });
    alarm::set(server);
}

/// Updates a session after an event of its key. If the lease has ended by itself, the lock will be returned to the session.
fn update_session_on_event(locks: &mut core::Locks, id: HoldId, event: &[u8]) {
    let Some(session) = locks.session(id) else { return };
    // Valkey also sends `expired` when a command has set the expiry time into the past.
    if event == b"expired" && session.has_expired(server::now_ms()) {
        locks.lease_expired(id);
    } else if LEASE_CHANGES.contains(&event) {
        locks.lease_changed(id);
    } else if event == b"expired" || REPLACEMENTS.contains(&event) {
        locks.end_session_of(id);
    }
}

/// Updates the sessions of a lock's shares after an event of its key. If the key was deleted or replaced, all of them end, except
/// those whose leases have ended by themselves. Other changes are found at the next check of the key.
fn update_shares_on_event(locks: &mut core::Locks, record: RecordId, event: &[u8]) {
    if event != b"expired" {
        let is_replaced = REPLACEMENTS.contains(&event);
        return if is_replaced { locks.end_shares(record) } else { locks.mark_for_recheck(record) };
    }
    let now = server::now_ms();
    let is_expired = |id: &HoldId| locks.session(*id).is_some_and(|session| session.has_expired(now));
    let expired = locks.shares(record).take(MAX_BATCH).find(is_expired);
    if let Some(one) = expired {
        locks.lease_expired(one); // All shares are returned together.
    } else if locks.shares(record).nth(MAX_BATCH).is_none() {
        locks.end_shares(record);
    } else {
        locks.mark_for_recheck(record); // The sessions end in the next run of the background work.
    }
}

/// The events of external commands that set or remove a lease.
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
