//! Leases that end in a pause.

use std::time::{Duration, Instant};

use support::{Reply, now_ms};

use super::Disturber;
use super::replicas::{AGREEMENT, eventually, waits};
use crate::link::Link;
use crate::pauses::NOTHING_IN_A_PAUSE;
use crate::world::World;

/// How long the first lock is held; the session's lock a little longer.
const LEASE: Duration = Duration::from_millis(300);
const SESSION_MS: u64 = 400;
/// Longer than both, with some time in which all leases have ended.
const PAUSE: Duration = Duration::from_millis(700);
const LOOK: Duration = Duration::from_millis(550);
/// What whoever waited asks for.
const NEXT_MS: i64 = 5000;
/// Server and clients read two clocks, in whole milliseconds.
const CLOCKS_MS: i64 = 3;
const CHECK: &str = "leases that end in a pause";

impl Disturber<'_> {
    /// Pauses the server while one waits for a lock whose lease ends in the pause, and a session would be renewed.
    pub(super) fn pause_over_leases(&mut self) {
        let world = self.world;
        let Some(mut scene) = Paused::set(world) else { return };
        let mode = if self.random.bool() { "WRITE" } else { "ALL" };
        let line = format!("CLIENT PAUSE {} {mode}", PAUSE.as_millis());
        world.figures.begins(CHECK);
        world.note_fault(&line);
        let now = Instant::now();
        world.weather.was_bad(now, now + PAUSE);
        let (sent_ms, sent) = (now_ms(), Instant::now());
        let reply = scene.link.run(&line);
        self.paused(&scene.link, &line, sent, &reply);
        if reply != "OK" || scene.asked.elapsed() > LEASE {
            return;
        }
        world.figures.fault("CLIENT PAUSE over leases");
        world.rest((sent + LOOK).saturating_duration_since(Instant::now()));
        // In a pause of everything nobody is answered.
        if mode == "WRITE" {
            scene.check_that_nothing_is_done(world, sent);
        }
        scene.check_that_it_goes_on(world, sent_ms + i64::try_from(PAUSE.as_millis()).unwrap_or_default());
    }
}

/// A lock whose lease ends while another waits, and one of a session.
struct Paused {
    link: Link,
    waiter: Link,
    session: Link,
    /// Of the lock for which one waits, and of the session's.
    locks: [String; 2],
    token: String,
    asked: Instant,
}

impl Paused {
    fn set(world: &World) -> Option<Self> {
        let (mut link, mut waiter) = (world.connect(0, false)?, world.connect(0, false)?);
        let mut session = world.connect(0, false)?;
        let (number, token) = (world.mint.fresh(), world.mint.fresh().to_string());
        let locks = ["p", "ps"].map(|prefix| format!("{prefix}{number}{}", world.suffix(0)));
        let asked = Instant::now();
        allows_leases(world, asked, asked).then_some(())?;
        let first = format!("LOCK.ACQUIRE {} {} PX {}", locks[0], world.mint.fresh(), LEASE.as_millis());
        (link.run(&first) == 1).then_some(())?;
        (session.run(&format!("LOCK.ACQUIRE {} {token} PX {SESSION_MS} SESSION", locks[1])) == 1).then_some(())?;
        waiter.send(&[format!("LOCK.ACQUIRE {} {token} PX {NEXT_MS} BLOCK 0", locks[0])])?;
        eventually(world, || waits(&mut link, &locks[0]) || asked.elapsed() > LEASE).then_some(())?;
        Some(Self { link, waiter, session, locks, token, asked })
    }

    /// Nothing is said where FLUSHALL or other settings may have been in the way.
    fn charge(&self, world: &World, what: String) {
        let now = Instant::now();
        let is_held_back = world.settings.may_hold_back(self.asked, now);
        if !world.flushes.any_since(self.asked) && !is_held_back && allows_leases(world, self.asked, now) {
            world.court.charge(NOTHING_IN_A_PAUSE, what);
        }
    }

    /// Both leases have ended, and that is all.
    fn check_that_nothing_is_done(&mut self, world: &World, sent: Instant) {
        for lock in self.locks.clone() {
            let info = self.link.run(&format!("LOCK.INFO {lock}"));
            // A look that came too late says nothing.
            let is_over = sent.elapsed() + Duration::from_millis(2) > PAUSE;
            if !is_over && matches!(info, Reply::List(_)) && info.get("state") != "free" {
                self.charge(world, format!("{lock} is {info:?}"));
            }
        }
    }

    /// After the end of the pause the one who waits gets the lock, and the session gets its own back.
    fn check_that_it_goes_on(mut self, world: &World, end_ms: i64) {
        let granted = self.waiter.receive(AGREEMENT);
        match granted {
            Some(Reply::Int(1)) => {}
            Some(Reply::Closed) => return,
            Some(reply) if world.is_refusal(&reply) => return,
            granted => return self.charge(world, format!("who waited then was told {granted:?}")),
        }
        let end = self.link.run(&format!("PEXPIRETIME {}", self.locks[0]));
        if matches!(end, Reply::Int(end) if end > 0 && end - NEXT_MS + CLOCKS_MS < end_ms) && world.is_clock_steady {
            self.charge(world, format!("the lease of the next ends at {end:?}, after a pause until {end_ms}"));
        }
        let line = format!("LOCK.EXTEND {} {} PX 100", self.locks[1], self.token);
        let reply = self.session.run(&line);
        if reply != 100 && reply != Reply::Closed && !world.is_refusal(&reply) {
            self.charge(world, format!("the session's {line} is answered {reply:?}"));
        }
        world.figures.checked(CHECK);
        self.link.run(&format!("DEL {}", self.locks[0]));
    }
}

/// Whether no lease that is asked for here was too long at any time between these two.
fn allows_leases(world: &World, from: Instant, until: Instant) -> bool {
    let longest = NEXT_MS.unsigned_abs();
    world.settings.cut(Some(longest), from, until) == Some(longest)
}
