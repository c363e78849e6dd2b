//! Leases that end while the server may write nothing: in a pause, and while it has no replica. A lock has a waiter,
//! another one a session. Neither is granted or renewed then; afterwards the waiter is granted its lock, and the
//! session has its own.

use std::time::{Duration, Instant};

use support::{Reply, now_ms};

use super::Faults;
use crate::evidence::NOTHING_IN_A_PAUSE;
use crate::link::Link;
use crate::report::Rule;
use crate::run::{AGREEMENT, Run};

const REFUSED: Rule = "nothing is granted or renewed while writes are refused";
/// The lease that the waiter asks for.
const NEXT_MS: i64 = 5000;
/// Longer than the leases below, with some time in which all of them have ended.
const PAUSE_MS: i64 = 700;
const LOOK: Duration = Duration::from_millis(550);
/// Server and clients read two clocks, in whole milliseconds.
const CLOCKS_MS: i64 = 3;
const PAUSED: &str = "leases that end in a pause";
pub const FENCED: &str = "refused writes";

/// A lock with a holder and a waiter, and the lock of a session.
struct Contention<'r> {
    run: &'r Run,
    rule: Rule,
    control: Link,
    waiter: Link,
    session: Link,
    waited: String,
    in_session: String,
    token: String,
    lease: Duration,
    /// The first lock was asked for at this time.
    asked: Instant,
}

impl Faults<'_> {
    /// Pauses the server over the end of the leases.
    pub(super) fn pause_over_leases(&mut self) {
        let run = self.run;
        let Some(mut locks) = Contention::set_up(run, NOTHING_IN_A_PAUSE, 300, 400) else { return };
        let mode = if self.random.bool() { "WRITE" } else { "ALL" };
        let line = format!("CLIENT PAUSE {PAUSE_MS} {mode}");
        run.counters.begin(PAUSED);
        run.fault(&line);
        let pause = Duration::from_millis(PAUSE_MS.unsigned_abs());
        run.evidence.stalls.add_from_now(pause);
        let (sent_ms, sent) = (now_ms(), Instant::now());
        let reply = locks.control.run(&line);
        self.paused(&locks.control, &line, sent, &reply);
        if reply != "OK" || locks.has_lost_lease() {
            return;
        }
        run.counters.count("CLIENT PAUSE over leases");
        run.rest((sent + LOOK).saturating_duration_since(Instant::now()));
        // In a pause of all commands no request is answered.
        if mode == "WRITE" {
            locks.check_free(|| sent.elapsed() + Duration::from_millis(2) <= pause);
        }
        if locks.check_resumed(sent_ms + PAUSE_MS).is_some() {
            run.counters.count(PAUSED);
        }
    }

    /// Has the server refuse writes because it has no replica.
    pub(super) fn refuse_writes(&mut self) {
        let run = self.run;
        run.counters.begin(FENCED);
        let Some(mut link) = run.connect(0, false) else { return };
        if !run.eventually(|| link.number("replication", "connected_slaves") == Some(0)) {
            return;
        }
        let Some(mut locks) = Contention::set_up(run, REFUSED, 800, 300) else { return };
        run.make_fault("min-replicas-to-write", "CONFIG SET min-replicas-to-write 1");
        let is_checked = run.evidence.stalls.during(|| {
            let begun = locks.control.run("CONFIG SET min-replicas-to-write 1") == "OK" && !locks.has_lost_lease();
            run.rest(locks.lease + Duration::from_millis(300));
            let is_checked = begun && locks.check_free(|| true).is_some() && locks.is_refused();
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
    fn set_up(run: &'r Run, rule: Rule, lease_ms: u64, session_lease_ms: u64) -> Option<Self> {
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
        Some(Self { run, rule, control, waiter, session, waited, in_session, token, lease, asked })
    }

    /// Whether the first lease may have ended.
    fn has_lost_lease(&self) -> bool {
        self.asked.elapsed() > self.lease
    }

    /// Reports a failure, unless FLUSHALL or other settings can be the cause.
    fn report(&self, what: String) {
        let evidence = &self.run.evidence;
        let may_suspend = evidence.may_suspend(self.asked, Instant::now());
        let is_allowed = self.run.allows_lease(NEXT_MS.unsigned_abs(), self.asked);
        if !evidence.flushes.any_since(self.asked) && !may_suspend && is_allowed {
            self.run.fails(self.rule, what);
        }
    }

    /// Both leases have ended, and no lock was granted or renewed. `in_time`: the reply still shows that.
    fn check_free(&mut self, in_time: impl Fn() -> bool) -> Option<()> {
        for lock in [self.waited.clone(), self.in_session.clone()] {
            let info = self.control.run(&format!("LOCK.INFO {lock}"));
            (info != Reply::Closed).then_some(())?;
            if in_time() && (!matches!(info, Reply::List(_)) || info.get("state") != "free") {
                self.report(format!("{lock} is {info:?}"));
            }
        }
        Some(())
    }

    /// A request for a free lock is refused.
    fn is_refused(&mut self) -> bool {
        let reply = self.control.run(&format!("LOCK.ACQUIRE x{} {} PX 100", self.in_session, self.token));
        if reply != Reply::Closed && !(reply.is_error() && reply.code() == "NOREPLICAS") {
            self.report(format!("the reply to a request for a free lock is {reply:?}"));
        }
        reply != Reply::Closed
    }

    /// The waiter is granted its lock with a lease from this time on, and the session has its own back.
    fn check_resumed(mut self, end_ms: i64) -> Option<()> {
        let reply = self.waiter.receive(AGREEMENT);
        if reply.as_ref().is_some_and(|reply| *reply == Reply::Closed || self.run.is_refusal(reply)) {
            return None;
        }
        if reply != Some(Reply::Int(1)) {
            self.report(format!("the reply to the waiter is {reply:?}"));
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
