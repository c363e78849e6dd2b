//! Leases that end while the server may write nothing: in a pause, and while it has no replica. A lock has a waiter,
//! another one a session. Neither is granted or renewed then; afterwards the waiter is granted its lock, and the
//! session has its own.

use std::time::{Duration, Instant};

use support::{Reply, now_ms};

use super::Faults;
use crate::link::Link;
use crate::report::Rule;
use crate::run::{AGREEMENT, Run};

const NOTHING: Rule = "nothing is granted or renewed while the server may write nothing";
const NEXT_MS: i64 = 5000;
/// Longer than the leases below, with some time in which all of them have ended.
const PAUSE_MS: i64 = 700;
/// Server and clients read two clocks, in whole milliseconds.
const CLOCKS_MS: i64 = 3;
const PAUSED: &str = "leases that end in a pause";
pub const FENCED: &str = "refused writes";

/// A lock with a holder and a waiter, and the lock of a session.
struct Contention<'r> {
    run: &'r Run,
    control: Link,
    waiter: Link,
    session: Link,
    waited: String,
    in_session: String,
    token: String,
    lease: Duration,
    asked: Instant,
}

impl Faults<'_> {
    pub(super) fn pause_over_leases(&mut self) {
        let run = self.run;
        let Some(mut locks) = Contention::set_up(run, 300, 400) else { return };
        let mode = if self.random.bool() { "WRITE" } else { "ALL" };
        let line = format!("CLIENT PAUSE {PAUSE_MS} {mode}");
        run.fault(&line);
        run.evidence.stalls.add_from_now(Duration::from_millis(PAUSE_MS.unsigned_abs()));
        let (sent_ms, sent) = (now_ms(), Instant::now());
        let reply = locks.control.run(&line);
        self.paused(&line, sent, &reply);
        if reply != "OK" || locks.asked.elapsed() > locks.lease {
            return;
        }
        run.counters.count("CLIENT PAUSE over leases");
        if locks.check_resumed(sent_ms + PAUSE_MS).is_some() {
            run.counters.count(PAUSED);
        }
    }

    pub(super) fn refuse_writes(&mut self) {
        let run = self.run;
        let Some(mut link) = run.connect(0, false) else { return };
        if !run.eventually(|| link.number("replication", "connected_slaves") == Some(0)) {
            return;
        }
        let Some(mut locks) = Contention::set_up(run, 800, 300) else { return };
        run.make_fault("min-replicas-to-write", "CONFIG SET min-replicas-to-write 1");
        let is_checked = run.evidence.stalls.during(|| {
            let begun =
                locks.control.run("CONFIG SET min-replicas-to-write 1") == "OK" && locks.asked.elapsed() < locks.lease;
            run.rest(locks.lease + Duration::from_millis(300));
            let is_checked = begun && locks.check_free().is_some();
            self.insist("CONFIG SET min-replicas-to-write 0");
            is_checked
        });
        if is_checked && locks.check_resumed(0).is_some() {
            run.counters.count(FENCED);
        }
    }
}

impl<'r> Contention<'r> {
    /// Takes both locks with these leases; `None` if a fault or the settings do not allow it.
    fn set_up(run: &'r Run, lease_ms: u64, session_lease_ms: u64) -> Option<Self> {
        let connect = || run.connect(0, false);
        let (mut control, mut waiter, mut session) = (connect()?, connect()?, connect()?);
        let (number, token) = (run.tokens.fresh(), run.tokens.fresh().to_string());
        let [waited, in_session] = ["w", "s"].map(|prefix| format!("{prefix}{number}{}", run.suffix(0)));
        let (asked, lease) = (Instant::now(), Duration::from_millis(lease_ms));
        run.allows_lease(NEXT_MS.unsigned_abs(), asked).then_some(())?;
        let first = format!("LOCK.ACQUIRE {waited} {} PX {lease_ms}", run.tokens.fresh());
        let line = format!("LOCK.ACQUIRE {in_session} {token} PX {session_lease_ms} SESSION");
        (control.run(&first) == 1 && session.run(&line) == 1).then_some(())?;
        waiter.send(&[format!("LOCK.ACQUIRE {waited} {token} PX {NEXT_MS} BLOCK 0")])?;
        run.eventually(|| control.has_waiters(&waited, 1) || asked.elapsed() > lease).then_some(())?;
        Some(Self { run, control, waiter, session, waited, in_session, token, lease, asked })
    }

    /// Reports a failure, unless FLUSHALL or other settings can be the cause.
    fn report(&self, what: String) {
        let (run, asked) = (self.run, self.asked);
        let may_suspend = run.evidence.may_suspend(asked, Instant::now()) || run.evidence.flushes.any_since(asked);
        if !may_suspend && run.allows_lease(NEXT_MS.unsigned_abs(), asked) {
            run.fails(NOTHING, what);
        }
    }

    /// Both leases have ended, and no lock was granted or renewed.
    fn check_free(&mut self) -> Option<()> {
        for lock in [self.waited.clone(), self.in_session.clone()] {
            let info = self.control.run(&format!("LOCK.INFO {lock}"));
            (info != Reply::Closed).then_some(())?;
            if !matches!(info, Reply::List(_)) || info.get("state") != "free" {
                self.report(format!("{lock} is {info:?}"));
            }
        }
        Some(())
    }

    /// The waiter is granted its lock with a lease from this time on, and the session has its own back.
    fn check_resumed(mut self, end_ms: i64) -> Option<()> {
        let reply = self.waiter.receive(AGREEMENT).unwrap_or_else(|| Reply::text("none"));
        if reply != 1 {
            let is_excused = reply == Reply::Closed || self.run.is_refusal(&reply);
            (!is_excused).then(|| self.report(format!("the reply to the waiter is {reply:?}")));
            return None;
        }
        let end = self.control.run(&format!("PEXPIRETIME {}", self.waited));
        let is_early = matches!(end, Reply::Int(end) if end > 0 && end - NEXT_MS + CLOCKS_MS < end_ms);
        if is_early && !self.run.evidence.sets_clock {
            self.report(format!("the lease of the waiter ends at {end:?}, after a pause until {end_ms}"));
        }
        let line = format!("LOCK.EXTEND {} {} PX 100", self.in_session, self.token);
        let reply = self.session.run(&line);
        if reply != 100 && reply != Reply::Closed && !self.run.is_refusal(&reply) {
            self.report(format!("the reply to {line} of the session is {reply:?}"));
        }
        self.control.run(&format!("DEL {}", self.waited));
        Some(())
    }
}
