//! One wait for a message, from the first request to the release.

use std::time::{Duration, Instant};

use support::{Reply, now_ms};

use super::super::claim::{Claim, Kind};
use super::super::{EXPECTED, KEPT, SESSION};
use super::tracker::{Event, Tracker};
use crate::evidence::{NOTHING_IN_A_PAUSE, SUSPENDED, is_put_off};
use crate::history::Request;
use crate::keys::Key;
use crate::report::{Finding, Rule};
use crate::run::Run;

const DATED: Rule = "a grant that a message shows begins its lease at that time";
const MAX_BLOCK_MS: u64 = 1500;
/// How far two readings of the clocks of the server and this program can be apart, in whole milliseconds.
const CLOCKS_MS: i64 = 2;
const CLOCKS: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Waiting,
    Holding,
    /// The client does nothing more with the token, but a message can be under way.
    Over,
}

/// The next step of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Asks again on this channel.
    Ask(usize),
    /// Asks again from another connection, which it blocks.
    Block,
    Release,
    /// Lets the lease end.
    Forget,
}

pub struct Wait<'r> {
    run: &'r Run,
    pub claim: Claim<'r>,
    pub trackers: [Tracker; 2],
    pub phase: Phase,
    pub next: Option<(Instant, Step)>,
    /// A release has no reply that was read: it may have worked.
    release_is_lost: bool,
    /// A moment before the first request, also by the clock of leases.
    begun: Instant,
    begun_ms: i64,
}

impl<'r> Wait<'r> {
    pub fn new(run: &'r Run, key: &'r Key, random: &mut fastrand::Rng) -> Self {
        let kind = match random.u8(..8) {
            0 => Kind::Reentrant,
            1..4 => Kind::Share,
            _ => Kind::Mutex,
        };
        let session = random.u8(..8) == 0;
        let mut claim = Claim::new(
            run,
            key,
            kind,
            Some(if session { random.u64(100..=500) } else { random.u64(5..=run.shorter(500)) }),
        );
        claim.session = session;
        Self {
            run,
            claim,
            trackers: Default::default(),
            phase: Phase::Waiting,
            next: None,
            release_is_lost: false,
            begun: Instant::now(),
            begun_ms: now_ms(),
        }
    }

    pub fn block_ms(run: &Run, random: &mut fastrand::Rng) -> u64 {
        if random.bool() { random.u64(1..100) } else { random.u64(1..=run.shorter(MAX_BLOCK_MS)) }
    }

    /// Plans the next step of a wait: mostly none.
    fn plan_waiting(&mut self, now: Instant, random: &mut fastrand::Rng) {
        let step = match random.u8(..12) {
            0 => Step::Release,
            1 => Step::Ask(0),
            2 => Step::Ask(1),
            // The lock of a session would belong to the other connection too.
            3 if !self.claim.session => Step::Block,
            _ => return,
        };
        self.next = Some((now + Duration::from_millis(random.u64(..60)), step));
    }

    /// Whether nothing is due or planned.
    fn is_idle(&self) -> bool {
        self.next.is_none() && !self.trackers.iter().any(|tracker| tracker.expects() || tracker.is_open())
    }

    pub fn is_released(&self) -> bool {
        self.trackers[0].released
    }

    /// The connection that asked is closed.
    pub fn asker_is_lost(&mut self) {
        if self.claim.session {
            (self.phase, self.next) = (Phase::Over, None);
        } else if self.is_released() {
            self.release_is_lost = true;
            self.next = Some((Instant::now(), Step::Release));
        }
    }

    /// The client knows of the grant, and holds the lock for some time.
    fn begin_to_hold(&mut self, now: Instant, random: &mut fastrand::Rng) {
        if self.phase != Phase::Waiting {
            return;
        }
        self.phase = Phase::Holding;
        if !self.is_released() {
            let lease = self.claim.lease_ms.unwrap_or_default();
            let span = if random.bool() { 0 } else { random.u64(..=lease + lease / 4) };
            let step = if random.u8(..8) == 0 && !self.claim.session { Step::Forget } else { Step::Release };
            self.next = Some((now + Duration::from_millis(span), step));
        }
    }

    /// Takes in the reply to a request. `channel` is that of a request with NOTIFY.
    #[expect(clippy::too_many_arguments, reason = "all that is known of a reply")]
    pub fn answered(
        &mut self,
        port: u16,
        request: &Request,
        channel: Option<usize>,
        reply: &Reply,
        at: Instant,
        in_order: bool,
        random: &mut fastrand::Rng,
    ) {
        let has_written = matches!(reply, Reply::Int(_)) || *reply == Reply::waiting();
        if has_written && self.run.pauses.cover(port, request.sent, at) {
            self.report(Some((NOTHING_IN_A_PAUSE, format!("in one the reply is {reply:?}"))));
        }
        if request.line.starts_with("LOCK.RELEASE") {
            return self.released(request.sent, reply, at);
        }
        let fresh = self.claim.has_one_request();
        self.report(self.run.in_force.check(self.claim.lease_ms, fresh, reply, request.sent, at));
        let waits = *reply == Reply::waiting();
        if let Some(channel) = channel {
            let finding = self.trackers[channel].answered(waits, in_order);
            self.report(finding);
        }
        if *reply == 1 {
            self.granted_by_reply(request.sent, at, random);
        } else if waits {
            self.run.counters.count("waits for a message");
            // Its message can have come before.
            if self.phase == Phase::Waiting {
                self.plan_waiting(at, random);
            }
        } else if channel.is_some() && reply.is_error() && reply.code() == "NOSUBSCRIBER" {
            self.run.counters.count("NOSUBSCRIBER");
        } else if !(self.is_explained(reply) || channel.is_none() && *reply == Reply::Nil) {
            self.report_strict(EXPECTED, reply);
        }
        if channel.is_some() && self.phase == Phase::Waiting && self.is_idle() && !self.is_released() {
            self.next = Some((at, Step::Release));
        }
    }

    /// The reply to a request that was sent then is a grant.
    fn granted_by_reply(&mut self, sent: Instant, received: Instant, random: &mut fastrand::Rng) {
        // On another connection a copy can have been granted the lock after the release.
        if self.is_released() {
            return;
        }
        // The same grant again: the lease can only have grown.
        if self.claim.has_lease_at(received) {
            self.claim.lengthened(sent, received);
        } else {
            self.claim.granted(sent, received);
        }
        self.begin_to_hold(received, random);
    }

    /// Takes in the reply to a release.
    fn released(&mut self, sent: Instant, reply: &Reply, at: Instant) {
        if self.phase == Phase::Over {
            return;
        }
        let is_explained = self.is_explained(reply);
        let is_allowed = match reply {
            Reply::Int(0) => {
                self.claim.check_held(sent);
                true
            }
            Reply::Nil => true,
            Reply::Error(_) => is_explained || matches!(reply.code(), "NOTHELD" | "NOTOWNER"),
            _ => false,
        };
        let is_loss = *reply != 0 && !is_explained && !self.release_is_lost;
        if !is_allowed {
            self.report_strict(EXPECTED, reply);
        } else if is_loss && self.claim.has_lease_at(at) {
            self.report_strict(KEPT, reply);
        } else if is_loss && self.phase == Phase::Holding && self.claim.has_session() {
            self.report_strict(SESSION, reply);
        }
        self.phase = Phase::Over;
    }

    /// Takes in a message. Returns false if there is no such event.
    pub fn message(
        &mut self,
        port: u16,
        channel: usize,
        event: &str,
        end_ms: i64,
        at: Instant,
        random: &mut fastrand::Rng,
    ) -> bool {
        let Some((event, counter)) = Event::read(event) else { return false };
        self.run.counters.count(counter);
        let finding = self.trackers[channel].heard(event, at, self.claim.is_from_before());
        self.report(finding);
        if self.phase != Phase::Over && event == Event::Granted {
            self.run.counters.add("grants", 1);
            let finding = self.granted_by_message(at, end_ms);
            self.report(finding);
            let granted_ms = self.granted_at_ms(at, end_ms);
            if granted_ms.is_some_and(|granted_ms| self.run.pauses.cover_ms(port, granted_ms)) {
                self.report(Some((NOTHING_IN_A_PAUSE, format!("a message of a lease that ends at {end_ms}"))));
            }
            if self.run.in_force.is_suspended(self.begun, at) {
                self.report(Some((SUSPENDED, "a message of a grant".to_owned())));
            }
            self.begin_to_hold(at, random);
        } else if self.phase != Phase::Over && self.is_idle() {
            self.phase = Phase::Over;
        }
        true
    }

    /// Returns the time of the grant in Unix milliseconds, if the end of the lease shows it.
    fn granted_at_ms(&self, received: Instant, end_ms: i64) -> Option<i64> {
        let leases = self.run.in_force.possible_leases(self.claim.lease_ms?, self.begun, received);
        let [lease] = leases[..] else { return None };
        Some(end_ms - i64::try_from(lease).ok()?)
    }

    /// A message has shown the grant with this end of its lease. The lease must be the one of the request, as the
    /// settings at the time of the grant cut it, and begin after the first request.
    fn granted_by_message(&mut self, received: Instant, end_ms: i64) -> Finding {
        let (before, now, after) = (Instant::now(), now_ms(), Instant::now());
        let lease = self.claim.lease_ms.unwrap_or_default();
        let leases = self.run.in_force.possible_leases(lease, self.begun, received);
        let left = u64::try_from(end_ms - now).unwrap_or_default();
        if !self.claim.has_lease_at(received) {
            self.claim.granted_until(self.begun, received, received + Duration::from_millis(left));
        }
        let begun = |lease: u64| end_ms - i64::try_from(lease).unwrap_or_default();
        let is_cut_right = |lease: u64, got: u64| {
            let ago = Duration::from_millis(u64::try_from(now - begun(got)).unwrap_or_default());
            let early = before.checked_sub(ago + CLOCKS).unwrap_or(self.begun);
            let late = after.checked_sub(ago).unwrap_or(after) + CLOCKS;
            self.run.in_force.possible_leases(lease, early, late).contains(&got)
        };
        let fits = leases.iter().any(|got| fits(self.begun_ms, now, begun(*got)) && is_cut_right(lease, *got));
        (!fits).then(|| {
            let first = self.begun_ms;
            (
                DATED,
                format!("a lease of {leases:?} ms to {end_ms}; the first request was at {first}, and now it is {now}"),
            )
        })
    }

    /// Errors that a fault explains.
    fn is_explained(&self, reply: &Reply) -> bool {
        let is_aborted = reply.is_error() && matches!(reply.code(), "EXECABORT" | "UNBLOCKED");
        is_aborted || self.run.is_refusal(reply) || is_put_off(reply)
    }

    /// Reports a reply that only the holder of a rough lock can get.
    fn report_strict(&self, rule: Rule, reply: &Reply) {
        let what = format!("{}: the reply is {reply:?}", self.claim.token);
        self.run.check_strict(self.claim.key, Some((rule, what)));
    }

    /// Reports a finding about a wait for any lock.
    pub fn report(&self, finding: Finding) {
        if let Some((rule, what)) = finding {
            self.run.report_lock(self.claim.key, rule, &format!("{}: {what}", self.claim.token));
        }
    }
}

/// Returns the BLOCK of a request that blocks its connection.
pub fn block_of(line: &str) -> Duration {
    let block = line.split_once(" BLOCK ").and_then(|(_, ms)| ms.split(' ').next()?.parse().ok());
    Duration::from_millis(block.unwrap_or_default())
}

/// Whether a lease can have begun then: between the request and now.
fn fits(asked_ms: i64, now_ms: i64, begun_ms: i64) -> bool {
    (asked_ms - CLOCKS_MS..=now_ms + CLOCKS_MS).contains(&begun_ms)
}

#[test]
fn lease_counts_from_the_grant() {
    assert!(fits(1000, 1500, 1000) && fits(1000, 1500, 1500));
    assert!(!fits(1000, 1500, 997), "it began before the request");
    assert!(!fits(1000, 1500, 1503), "it has not begun");
}

#[test]
fn block_is_read_from_the_request() {
    assert_eq!(block_of("LOCK.ACQUIRE a t1 PX 5 BLOCK 70"), Duration::from_millis(70));
    assert_eq!(block_of("LOCK.RELEASE a t1"), Duration::ZERO);
}
