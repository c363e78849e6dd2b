//! A server that refuses writes, since it has no replica.

use std::time::{Duration, Instant};

use support::Reply;

use super::Disturber;
use super::replicas::{AGREEMENT, eventually, waits};
use crate::ending;
use crate::link::Link;
use crate::world::World;

impl Disturber<'_> {
    /// Has the server refuse writes since it has no replica: nothing is granted then, and nothing renewed.
    pub(super) fn refuse_writes(&mut self) {
        let world = self.world;
        world.figures.begins(CHECK);
        let Some(mut scene) = Fenced::set(world) else { return };
        world.fault("min-replicas-to-write", "CONFIG SET min-replicas-to-write 1");
        let refused = world.weather.is_bad_during(|| {
            let begun = scene.link.run("CONFIG SET min-replicas-to-write 1") == "OK" && scene.asked.elapsed() < LEASE;
            world.rest(LEASE + Duration::from_millis(300));
            let refused = begun.then(|| scene.check_that_nothing_is_done(world));
            while !world.court.is_over() && !self.run_line("CONFIG SET min-replicas-to-write 0") {}
            refused
        });
        if let Some(Some(())) = refused {
            scene.check_that_it_goes_on(world);
            world.figures.checked(CHECK);
        }
    }
}

/// A lock whose lease ends while another waits, and one of a session, at a server without replicas.
struct Fenced {
    link: Link,
    waiter: Link,
    session: Link,
    name: String,
    token: String,
    /// The first lock was asked for then.
    asked: Instant,
}

/// How long the first lock is held.
const LEASE: Duration = Duration::from_millis(800);
pub const CHECK: &str = "refused writes";
const REFUSED: &str = "nothing is granted or renewed while writes are refused";

impl Fenced {
    fn set(world: &World) -> Option<Self> {
        let (mut link, mut waiter) = (world.connect(0, false)?, world.connect(0, false)?);
        let mut session = world.connect(0, false)?;
        let (name, token) = (world.mint.fresh().to_string(), world.mint.fresh().to_string());
        let attached = || ending::figure(&mut link, "replication", "connected_slaves") == Some(0);
        eventually(world, attached).then_some(())?;
        let asked = Instant::now();
        let lines = [
            (&mut link, format!("LOCK.ACQUIRE w{name} {} PX {}", world.mint.fresh(), LEASE.as_millis())),
            (&mut session, format!("LOCK.ACQUIRE s{name} {token} PX 300 SESSION")),
        ];
        for (link, line) in lines {
            (link.run(&line) == 1).then_some(())?;
        }
        waiter.send(&[format!("LOCK.ACQUIRE w{name} {token} PX 5000 BLOCK 0")])?;
        eventually(world, || waits(&mut link, &format!("w{name}")) || asked.elapsed() > LEASE).then_some(())?;
        Some(Self { link, waiter, session, name, token, asked })
    }

    fn charge(&self, world: &World, what: String) {
        // FLUSHALL, too, lets the next in line have the first lock.
        if !world.flushes.any_since(self.asked) {
            world.court.charge(REFUSED, what);
        }
    }

    /// Both leases have ended, and that is all. None when the connection is closed.
    fn check_that_nothing_is_done(&mut self, world: &World) -> Option<()> {
        let (name, token) = (&self.name, &self.token);
        for lock in [format!("w{name}"), format!("s{name}")] {
            let info = self.link.run(&format!("LOCK.INFO {lock}"));
            if info == Reply::Closed {
                return None;
            }
            if !matches!(info, Reply::List(_)) || info.get("state") != "free" {
                self.charge(world, format!("{lock} is {info:?}"));
            }
        }
        let lines = [
            format!("LOCK.ACQUIRE x{name} {token} PX 100"),
            format!("LOCK.REENTER x{name} {token} PX 100"),
            format!("LOCK.SHARE x{name} {token} PX 100"),
            format!("LOCK.EXTEND s{name} {token} PX 100"),
            format!("LOCK.RELEASE s{name} {token}"),
        ];
        for line in lines {
            let reply = self.link.run(&line);
            if reply == Reply::Closed {
                return None;
            }
            if !matches!(&reply, Reply::Error(text) if text.starts_with("NOREPLICAS")) {
                self.charge(world, format!("{line} is answered {reply:?}"));
            }
        }
        Some(())
    }

    /// The one who waits gets the lock, and the session gets its own back.
    fn check_that_it_goes_on(mut self, world: &World) {
        let granted = self.waiter.receive(AGREEMENT);
        if !matches!(granted, Some(Reply::Int(1) | Reply::Closed)) {
            self.charge(world, format!("who waited then was told {granted:?}"));
        }
        let line = format!("LOCK.EXTEND s{} {} PX 100", self.name, self.token);
        let reply = self.session.run(&line);
        if reply != 100 && reply != Reply::Closed {
            self.charge(world, format!("the session's {line} is answered {reply:?}"));
        }
    }
}
