//! Durability probes: locks that are taken before a fault. All that was replied must still be true after it.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use support::Reply;

use crate::evidence::is_put_off;
use crate::link::{Link, PATIENCE};
use crate::run::Run;
use crate::token::Token;

const LOCKS: u64 = 12;
/// Leases that are longer than any fault.
const LEASES_MS: std::ops::Range<i64> = 60_000..90_000;
/// The rest of a lease is shown in whole milliseconds, by a clock that can be adjusted.
const CLOCKS_MS: i64 = 5;
pub const CHECK: &str = "durability probes";
pub const BEGUN: &str = "durability probes begun";
/// FLUSHALL would remove most of them, so it comes only during one probe of this number.
const ONE_FLUSHED_OF: u8 = 4;

pub struct Probe<'r> {
    run: &'r Run,
    database: u32,
    begun: Instant,
    locks: Vec<Taken>,
    _no_flushes: Option<Arc<()>>,
}

/// The state of a lock, or the difference; `None` where a fault excuses the reply.
type Checked = Option<Result<(), String>>;

struct Taken {
    name: String,
    token: Token,
    command: &'static str,
    holds: i64,
    lease_ms: i64,
    /// The lease began between these two, also where another hold lengthened it.
    asked: Instant,
    granted: Instant,
}

impl<'r> Probe<'r> {
    /// Takes locks that no other client knows, some of them by waiting; `None` if a reply is not a grant because of an
    /// earlier fault.
    pub fn take(run: &'r Run, database: u32, random: &mut fastrand::Rng) -> Option<Self> {
        run.counters.count(BEGUN);
        let no_flushes = (random.u8(..ONE_FLUSHED_OF) > 0).then(|| Arc::clone(&run.no_flushes));
        let begun = Instant::now();
        let mut links = (run.connect(database, false)?, run.connect(database, false)?);
        let number = run.tokens.fresh();
        let name = |index| format!("d{number}.{index}{}", run.suffix(database));
        let locks: Option<_> = (0..LOCKS).map(|index| Taken::take(run, &mut links, name(index), random)).collect();
        Some(Self { run, database, begun, locks: locks?, _no_flushes: no_flushes })
    }

    /// Checks that every lock is as it was, and releases it; leases may have gained `gained` ms. Returns whether all
    /// were checked: a closed connection or a flush makes the probe void.
    pub fn check(&self, gained: RangeInclusive<i64>) -> bool {
        let Some(mut link) = self.run.connect(self.database, false) else { return false };
        let are_found = self.locks.iter().all(|taken| {
            let checked = match taken.check_kept(self.run, &gained, &mut link) {
                Some(Ok(())) => taken.check_released(self.run, &mut link),
                other => other,
            };
            let is_flushed = self.run.evidence.flushes.any_since(self.begun);
            if let Some(Err(what)) = checked.as_ref().filter(|_| !is_flushed) {
                let text = format!("{} of {}, {}: {what}", taken.name, taken.token, taken.command);
                self.run.fails("nothing that was replied is forgotten", text);
            }
            matches!(checked, Some(Ok(()))) && !is_flushed
        });
        if are_found {
            self.run.counters.count(CHECK);
        }
        are_found
    }
}

impl Taken {
    fn take(run: &Run, (link, other): &mut (Link, Link), name: String, random: &mut fastrand::Rng) -> Option<Self> {
        let (token, lease_ms) = (run.tokens.fresh(), random.i64(LEASES_MS));
        let (command, holds) = [("ACQUIRE", 1), ("REENTER", random.i64(1..4)), ("SHARE", 1)][random.usize(..3)];
        let before = random.bool().then(|| run.tokens.fresh());
        if let Some(before) = before {
            (other.run(&format!("LOCK.ACQUIRE {name} {before} PX {lease_ms}")) == 1).then_some(())?;
        }
        let now = Instant::now();
        let mut taken = Self { name, token, command, holds, lease_ms, asked: now, granted: now };
        taken.asked = link.send(&[format!("{} BLOCK 5000", taken.request(lease_ms, 1))])?;
        if let Some(before) = before {
            (other.run(&format!("LOCK.RELEASE {} {before}", taken.name)) == 0).then_some(())?;
        }
        (link.receive(PATIENCE)? == 1).then_some(())?;
        for hold in 2..=holds {
            (link.run(&taken.request(lease_ms, hold)) == hold).then_some(())?;
        }
        taken.granted = Instant::now();
        Some(taken)
    }

    fn request(&self, lease_ms: i64, hold: i64) -> String {
        let option = match self.command {
            "REENTER" => format!(" HOLD {hold}"),
            "SHARE" => " LIMIT 1".to_owned(),
            _ => String::new(),
        };
        format!("LOCK.{} {} {} PX {lease_ms}{option}", self.command, self.name, self.token)
    }

    /// Checks that its holder has it with the rest of its lease, and another token does not get it.
    fn check_kept(&self, run: &Run, gained: &RangeInclusive<i64>, link: &mut Link) -> Checked {
        let sent = link.send(&[format!("PTTL {}", self.name)])?;
        let reply = link.receive(PATIENCE).filter(|reply| *reply != Reply::Closed)?;
        let received = Instant::now();
        let rest = |span: Duration| self.lease_ms - i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        let least = rest(received - self.asked) + gained.start() - CLOCKS_MS;
        let most = rest(sent.saturating_duration_since(self.granted)) + gained.end() + CLOCKS_MS;
        if !matches!(reply, Reply::Int(ms) if (least..=most).contains(&ms)) {
            return Some(Err(format!("the rest of the lease is {reply:?} ms, not {least} to {most}")));
        }
        let line = format!("LOCK.ACQUIRE {} {} PX 1000", self.name, run.tokens.fresh());
        let reply = answer(run, link, &line)?;
        Some((reply == Reply::Nil).then_some(()).ok_or_else(|| format!("the reply to {line} is {reply:?}, not nil")))
    }

    fn check_released(&self, run: &Run, link: &mut Link) -> Checked {
        let (name, token) = (&self.name, self.token);
        let release = |hold| (format!("LOCK.RELEASE {name} {token} HOLD {hold}"), hold - 1);
        let extend = (format!("LOCK.EXTEND {name} {token} PX 5000"), 5000);
        let lines = [(self.request(1, self.holds), self.holds), extend];
        for (line, expected) in lines.into_iter().chain((1..=self.holds).rev().map(release)) {
            let reply = answer(run, link, &line)?;
            if reply != expected {
                return Some(Err(format!("the reply to {line} is {reply:?}, not {expected}")));
            }
        }
        Some(Ok(()))
    }
}

/// The reply to a line; `None` if the connection is closed, or a fault or a recovery period excuses the reply.
fn answer(run: &Run, link: &mut Link, line: &str) -> Option<Reply> {
    let sent = Instant::now();
    let reply = link.run(line);
    let is_put_off = is_put_off(&reply) && run.evidence.may_suspend(sent, Instant::now());
    (reply != Reply::Closed && !run.is_refusal(&reply) && !is_put_off).then_some(reply)
}
