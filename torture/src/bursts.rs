//! Many locks at once whose short leases end by themselves, each with several who wait: nobody releases, nobody looks at
//! them, so the module alone has to hand them over, all in the same few milliseconds.

use std::time::{Duration, Instant};

use support::Reply;

use crate::link::Link;
use crate::pulse::starved;
use crate::settings::is_put_off;
use crate::world::World;

const WAITERS: usize = 3;
const BLOCK_MS: u64 = 6000;
/// Of four locks this one has a share that is held for longer than the others wait.
const KEPT: usize = 3;
const KEPT_MS: u64 = 2000;
/// What all hand-overs of a lock may take together beyond its leases, with this program's own time to read the answers.
const SLACK: Duration = Duration::from_millis(250);
const LATE: &str = "the end of a lease is noticed";

/// The connections of a burst, kept for the next one.
struct Crowd {
    holder: Link,
    waiters: Vec<Link>,
}

/// Makes bursts until the run is over.
pub fn run(world: &World, mut random: fastrand::Rng) {
    let mut crowd = None;
    for number in 0_u32.. {
        world.rest(Duration::from_millis(random.u64(500..3000)));
        if !world.goes_on() {
            return;
        }
        let locks = random.usize(20..100);
        let Some(gathered) = gather(world, crowd.take(), locks) else { continue };
        crowd = burst(world, &mut random, gathered, number, locks);
    }
}

/// So many connections, in a database of strict keys.
fn gather(world: &World, crowd: Option<Crowd>, locks: usize) -> Option<Crowd> {
    let mut crowd = match crowd {
        Some(crowd) => crowd,
        None => Crowd { holder: world.connect(1, false)?, waiters: Vec::new() },
    };
    while crowd.waiters.len() < locks * WAITERS {
        crowd.waiters.push(world.connect(1, false)?);
    }
    Some(crowd)
}

/// One burst; the crowd, if all of its connections are still good.
fn burst(world: &World, random: &mut fastrand::Rng, mut crowd: Crowd, number: u32, locks: usize) -> Option<Crowd> {
    let lease = random.u64(5..=25);
    let first = |lock: usize| request(world, number, lock, if lock % 4 == KEPT { KEPT_MS } else { lease });
    let lines: Vec<String> = (0..locks).map(first).collect();
    crowd.holder.send(&lines)?;
    for at in 0..locks * WAITERS {
        crowd.waiters[at].send(&[format!("{} BLOCK {BLOCK_MS}", request(world, number, at % locks, lease))])?;
    }
    let (sent, starved_before) = (Instant::now(), starved());
    world.figures.requests.add((locks * (WAITERS + 1)) as u64);
    world.figures.fault("leases that end together");
    for _ in 0..locks {
        let reply = crowd.holder.receive(Duration::from_secs(20)).unwrap_or(Reply::Closed);
        // On another connection a waiter may come first.
        if reply != Reply::Nil && !is_put_off(&reply) {
            check(world, &reply, "the first")?;
        }
    }
    let leases = Duration::from_millis((WAITERS as u64 + 1) * (lease + 1));
    for (at, link) in crowd.waiters.iter_mut().take(locks * WAITERS).enumerate() {
        let reply = link.receive(Duration::from_secs(30)).unwrap_or(Reply::Closed);
        let received = Instant::now();
        if world.settings.may_hold_back(sent, received) {
            return None;
        }
        let own = starved().saturating_sub(starved_before);
        check_time(
            world,
            sent,
            received,
            leases + own,
            &format!("b{number}.{}, with leases of {lease} ms", at % locks),
        );
        check(world, &reply, "a waiter")?;
    }
    Some(crowd)
}

/// Every other lock has one permit, or two of which the first holder keeps one.
fn request(world: &World, burst: u32, lock: usize, lease: u64) -> String {
    let (command, limit) = [("ACQUIRE", ""), ("SHARE", " LIMIT 1"), ("ACQUIRE", ""), ("SHARE", " LIMIT 2")][lock % 4];
    format!("LOCK.{command} b{burst}.{lock}{} {} PX {lease}{limit}", world.suffix(1), world.mint.fresh())
}

fn check_time(world: &World, sent: Instant, received: Instant, leases: Duration, lock: &str) {
    let took = received - sent;
    if took <= leases + SLACK {
        return;
    }
    let bad = world.weather.between(sent, received);
    if took > leases + SLACK + bad {
        let text = format!("{lock}: a waiter was answered after {took:?}, when faults explain {bad:?}");
        world.court.charge(LATE, text);
    }
}

/// Everybody gets the lock; None ends the burst, since connections were closed by a fault.
fn check(world: &World, reply: &Reply, who: &str) -> Option<()> {
    match reply {
        Reply::Int(1) => {
            world.figures.grants.add(1);
            Some(())
        }
        Reply::Closed => None,
        // A clock that is set forward ends waits, too.
        Reply::Nil if !world.is_clock_steady => None,
        other if world.is_refusal(other) => None,
        other => {
            world.court.charge("everybody in line gets the lock", format!("{who} of a burst was told {other:?}"));
            None
        }
    }
}
