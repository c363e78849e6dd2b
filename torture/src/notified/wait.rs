//! One wait for a message, from the first request to the release.

use std::time::{Duration, Instant};

use support::now_ms;

use super::post::Post;
use crate::keys::Key;
use crate::member::{Claim, Kind};
use crate::world::World;

const LONGEST_BLOCK_MS: u64 = 1500;
/// How far two readings of the server's and this program's clock may be apart, in whole milliseconds.
const CLOCKS_MS: i64 = 2;
const CLOCKS: Duration = Duration::from_millis(5);

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    InLine,
    Holding,
    /// Nothing more is done with the token, but a message may be under way.
    Over,
}

/// What its client does next with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Asks again on this channel, of the two.
    Ask(usize),
    /// Asks again from another connection, which it blocks.
    Block,
    Release,
    /// Lets the lease end.
    Forget,
}

pub struct Wait<'w> {
    pub claim: Claim<'w>,
    pub posts: [Post; 2],
    pub phase: Phase,
    pub next: Option<(Instant, Step)>,
    /// A release was sent and its answer never read: it may have worked.
    pub release_is_lost: bool,
    /// A moment before the first request, also by the clock that leases go by.
    pub begun: Instant,
    begun_ms: i64,
}

impl<'w> Wait<'w> {
    pub fn new(world: &World, key: &'w Key, random: &mut fastrand::Rng) -> Self {
        let kind = match random.u8(..8) {
            0 => Kind::Reentrant,
            1..4 => Kind::Share,
            _ => Kind::Mutex,
        };
        let session = random.u8(..8) == 0;
        let shortest = if session { 100 } else { 5 };
        let mut claim = Claim::new(world, key, kind, Some(random.u64(shortest..=500)));
        if session {
            claim = claim.for_session();
        }
        Self {
            claim,
            posts: Default::default(),
            phase: Phase::InLine,
            next: None,
            release_is_lost: false,
            begun: Instant::now(),
            begun_ms: now_ms(),
        }
    }

    pub fn block_ms(random: &mut fastrand::Rng) -> u64 {
        if random.bool() { random.u64(1..100) } else { random.u64(1..=LONGEST_BLOCK_MS) }
    }

    /// Plans what to do while it stands in line: mostly nothing.
    pub fn plan_in_line(&mut self, now: Instant, random: &mut fastrand::Rng) {
        let step = match random.u8(..12) {
            0 => Step::Release,
            1 => Step::Ask(0),
            2 => Step::Ask(1),
            // The lock of a session would belong to the other connection, too.
            3 if !self.claim.session => Step::Block,
            _ => return,
        };
        self.next = Some((now + Duration::from_millis(random.u64(..60)), step));
    }

    /// Whether nothing is due or planned.
    pub fn is_idle(&self) -> bool {
        self.next.is_none() && !self.posts.iter().any(|post| post.expects() || post.is_open())
    }

    pub fn is_released(&self) -> bool {
        self.posts[0].released
    }

    /// An answer to a request that was sent then has told the grant.
    pub fn granted_by_answer(&mut self, world: &World, sent: Instant, received: Instant, random: &mut fastrand::Rng) {
        // On another connection a copy may have been granted the lock when the release had been carried out.
        if self.is_released() {
            return;
        }
        // Told again of the same grant: a lease only grows.
        if self.claim.has_lease_at(world, received) {
            self.claim.lengthened(world, sent, received);
        } else {
            self.claim.granted(world, sent, received);
        }
        self.begin_to_hold(received, random);
    }

    /// Its client knows of the grant.
    pub fn begin_to_hold(&mut self, now: Instant, random: &mut fastrand::Rng) {
        if self.phase != Phase::InLine {
            return;
        }
        if self.is_released() {
            self.phase = Phase::Holding;
        } else {
            self.plan_holding(now, random);
        }
    }

    /// It holds the lock, for some time.
    fn plan_holding(&mut self, now: Instant, random: &mut fastrand::Rng) {
        self.phase = Phase::Holding;
        let lease = self.claim.lease_ms.unwrap_or_default();
        let span = if random.bool() { 0 } else { random.u64(..=lease + lease / 4) };
        let step = if random.u8(..8) == 0 && !self.claim.session { Step::Forget } else { Step::Release };
        self.next = Some((now + Duration::from_millis(span), step));
    }

    /// When the lock was granted, in Unix milliseconds, if a message that has told this end of the lease tells that.
    pub fn granted_at_ms(&self, world: &World, received: Instant, end_ms: i64) -> Option<i64> {
        let leases = world.settings.possible_leases(self.claim.lease_ms?, self.begun, received);
        let [lease] = leases[..] else { return None };
        Some(end_ms - i64::try_from(lease).ok()?)
    }

    /// A message has told the grant with this end of its lease, in Unix milliseconds. Err if that is not the lease asked for,
    /// counted from some moment since the first request.
    pub fn granted_by_message(&mut self, world: &World, received: Instant, end_ms: i64) -> Result<(), String> {
        let before = Instant::now();
        let now = now_ms();
        let after = Instant::now();
        let lease = self.claim.lease_ms.unwrap_or_default();
        let leases = world.settings.possible_leases(lease, self.begun, received);
        let left = u64::try_from(end_ms - now).unwrap_or_default();
        if !self.claim.has_lease_at(world, received) {
            self.claim.granted_until(self.begun, received, received + Duration::from_millis(left));
        }
        let begun = |got: u64| end_ms - i64::try_from(got).unwrap_or_default();
        // The moment of the grant, if it was with this lease; there it must have been what the settings say.
        let is_cut_right = |got: u64| {
            let ago = Duration::from_millis(u64::try_from(now - begun(got)).unwrap_or_default());
            let early = before.checked_sub(ago + CLOCKS).unwrap_or(self.begun);
            let late = after.checked_sub(ago).unwrap_or(after) + CLOCKS;
            world.settings.possible_leases(lease, early, late).contains(&got)
        };
        if leases.iter().any(|got| fits(self.begun_ms, now, begun(*got)) && is_cut_right(*got)) {
            return Ok(());
        }
        let first = self.begun_ms;
        Err(format!("a lease of {leases:?} ms to {end_ms}; it asked at {first}, and now it is {now}"))
    }
}

/// Whether a lease can have begun then: between the request and now.
fn fits(asked_ms: i64, now_ms: i64, begun_ms: i64) -> bool {
    (asked_ms - CLOCKS_MS..=now_ms + CLOCKS_MS).contains(&begun_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_counts_from_the_grant() {
        assert!(fits(1000, 1500, 1000) && fits(1000, 1500, 1500));
        assert!(!fits(1000, 1500, 997), "it began before the request");
        assert!(!fits(1000, 1500, 1503), "it has not begun");
    }
}
