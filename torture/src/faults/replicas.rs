//! Replicas that come and go, and take over.

use std::thread::sleep;
use std::time::{Duration, Instant};

use support::{Protocol, Reply};

use super::Disturber;
use crate::deposit::Deposit;
use crate::ending;
use crate::link::Link;
use crate::scene::{Replica, Scene};
use crate::world::World;

const SAME: &str = "a replica that has heard everything has the same locks";
const ALIVE: &str = "servers start, and go on";
/// How long servers may take to agree about their roles, and to hand over all data, on a busy machine.
const AGREEMENT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

impl Disturber<'_> {
    /// Does something with the replica, or without one.
    pub(super) fn change_replicas(&mut self) {
        let Some(has_module) = self.scene.replica().map(|replica| replica.has_module) else {
            return if self.random.u8(..3) == 0 { self.refuse_writes() } else { self.begin_replica() };
        };
        match self.random.u8(..8) {
            0 => self.end_replica(),
            1 | 2 => self.compare_locks(),
            3 => self.leave_and_return(),
            _ if has_module => self.fail_over(),
            _ => self.end_replica(),
        }
    }

    fn begin_replica(&mut self) {
        let has_module = self.random.u8(..4) > 0;
        self.world.fault("replicas", &format!("a replica starts, with the module: {has_module}"));
        if let Err(what) = self.scene.start_replica(has_module) {
            self.world.court.charge(ALIVE, what);
        }
    }

    pub(super) fn end_replica(&mut self) {
        self.world.fault("replicas end", "the replica is killed");
        if let Err(what) = self.scene.end_replica() {
            self.world.court.charge(ALIVE, what);
        }
    }

    /// Has the replica go its own way for a moment, where a request waits for a lock: it is told when that is over.
    fn leave_and_return(&mut self) {
        let (world, port) = (self.world, self.scene.server().port());
        let Some(replica) = self.scene.replica().filter(|replica| replica.has_module) else { return };
        let (Some(mut link), Some(mut waiter)) = (link_to(replica), link_to(replica)) else { return };
        let name = world.mint.fresh();
        world.fault("replicas leave and return", "REPLICAOF NO ONE");
        link.run("REPLICAOF NO ONE");
        link.run(&format!("LOCK.ACQUIRE {name} {} PX 60000", world.mint.fresh()));
        let asked = waiter.send(&[format!("LOCK.ACQUIRE {name} {} PX 60000 BLOCK 0", world.mint.fresh())]);
        let waits = || {
            let info = link.run(&format!("LOCK.INFO {name}"));
            matches!(info, Reply::List(_)) && info.get("waiters") == 1
        };
        if asked.is_none() || !eventually(world, waits) {
            return world.court.charge(ALIVE, "nobody waits at a replica that has left its master".to_owned());
        }
        link.run(&format!("REPLICAOF 127.0.0.1 {port}"));
        match waiter.receive(AGREEMENT) {
            Some(Reply::Closed) => {}
            Some(Reply::Error(line)) if line.starts_with("UNBLOCKED") => {}
            other => {
                let text = format!("who waited when its server became a replica was told {other:?}");
                world.court.charge("who waits at a server that becomes a replica is told", text);
            }
        }
    }

    /// Leaves locks and looks at them on the replica.
    fn compare_locks(&mut self) {
        let world = self.world;
        let Some(deposit) = Deposit::leave(world, &mut self.random) else { return };
        let Some(mut link) = world.connect(0, false) else { return };
        let Some(replica) = self.scene.replica() else { return };
        if !follows(world, replica, &mut link) {
            return;
        }
        world.fault("locks compared", "the replica is compared");
        let Some(mut other) = link_to(replica) else { return };
        if let Err(what) = deposit.is_the_same_on(&mut link, &mut other) {
            return world.court.charge(SAME, what);
        }
        check_requests(world, replica);
        deposit.check(world);
    }

    /// Has the replica become the master, and the master a replica, without losing anything.
    fn fail_over(&mut self) {
        let world = self.world;
        let Some(mut link) = world.connect(0, false) else { return };
        let Some(replica) = self.scene.replica() else { return };
        if !follows(world, replica, &mut link) {
            return;
        }
        let deposit = Deposit::leave(world, &mut self.random);
        let (port, next) = (self.scene.server().port(), replica.server.port());
        world.note_fault("FAILOVER");
        world.server.leaves();
        let line = format!("FAILOVER TO 127.0.0.1 {next} TIMEOUT 3000");
        let is_done = world.weather.is_bad_during(|| link.run(&line) == "OK" && hands_over(world, &mut link));
        if is_done {
            world.fault("FAILOVER", &format!("{next} is the master now, after {port}"));
            self.scene.swap();
        }
        world.server.is_back_at(if is_done { next } else { port });
        if let Some(deposit) = deposit {
            deposit.check(world);
        }
    }

    /// Has the server refuse writes since it has no replica: nothing is granted then, and nothing renewed.
    fn refuse_writes(&mut self) {
        let world = self.world;
        let Some(mut scene) = Fenced::set(world) else { return };
        world.fault("min-replicas-to-write", "CONFIG SET min-replicas-to-write 1");
        let refused = world.weather.is_bad_during(|| {
            let begun = scene.link.run("CONFIG SET min-replicas-to-write 1") == "OK";
            world.rest(Duration::from_millis(700));
            let refused = begun.then(|| scene.check_that_nothing_is_done(world));
            while !world.court.is_over() && !self.run_line("CONFIG SET min-replicas-to-write 0") {}
            refused
        });
        if let Some(Some(())) = refused {
            scene.check_that_it_goes_on(world);
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
}

const REFUSED: &str = "nothing is granted or renewed while writes are refused";

impl Fenced {
    fn set(world: &World) -> Option<Self> {
        let (mut link, mut waiter) = (world.connect(0, false)?, world.connect(0, false)?);
        let mut session = world.connect(0, false)?;
        let (name, token) = (world.mint.fresh().to_string(), world.mint.fresh().to_string());
        let attached = || ending::figure(&mut link, "replication", "connected_slaves") == Some(0);
        eventually(world, attached).then_some(())?;
        let lines = [
            (&mut link, format!("LOCK.ACQUIRE w{name} {} PX 400", world.mint.fresh())),
            (&mut session, format!("LOCK.ACQUIRE s{name} {token} PX 300 SESSION")),
        ];
        for (link, line) in lines {
            (link.run(&line) == 1).then_some(())?;
        }
        waiter.send(&[format!("LOCK.ACQUIRE w{name} {token} PX 5000 BLOCK 0")])?;
        Some(Self { link, waiter, session, name, token })
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
                world.court.charge(REFUSED, format!("{lock} is {info:?}"));
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
                world.court.charge(REFUSED, format!("{line} is answered {reply:?}"));
            }
        }
        Some(())
    }

    /// The one who waits gets the lock, and the session gets its own back.
    fn check_that_it_goes_on(mut self, world: &World) {
        let granted = self.waiter.receive(AGREEMENT);
        if !matches!(granted, Some(Reply::Int(1) | Reply::Closed)) {
            world.court.charge(REFUSED, format!("who waited then was told {granted:?}"));
        }
        let line = format!("LOCK.EXTEND s{} {} PX 100", self.name, self.token);
        let reply = self.session.run(&line);
        if reply != 100 && reply != Reply::Closed {
            world.court.charge(REFUSED, format!("the session's {line} is answered {reply:?}"));
        }
    }
}

/// A connection to the replica itself.
fn link_to(replica: &Replica) -> Option<Link> {
    Link::open(replica.server.port(), 0, false)
}

/// Waits for something; false when it does not come.
fn eventually(world: &World, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + AGREEMENT;
    while !condition() {
        if world.court.is_over() || Instant::now() > deadline {
            return false;
        }
        sleep(POLL);
    }
    true
}

/// Waits until the replica has heard what was written until now; false when it does not, as other faults may explain.
fn follows(world: &World, replica: &Replica, link: &mut Link) -> bool {
    let up = || {
        let client = support::Client::connect(replica.server.port(), Protocol::Resp2);
        client.is_some_and(|mut client| client.info("replication", "master_link_status").as_deref() == Some("up"))
    };
    eventually(world, up) && {
        link.run("SELECT 0");
        link.run("SET mark x PX 1000");
        link.run("WAIT 1 5000") == 1
    }
}

/// Waits until a server that was told FAILOVER is a replica; false when it has given that up.
fn hands_over(world: &World, link: &mut Link) -> bool {
    let mut is_replica = false;
    let settled = || {
        let says = |link: &mut Link, name| ending::text(link, "replication", name).unwrap_or_default();
        is_replica = says(link, "role") == "slave";
        is_replica && says(link, "master_link_status") == "up"
            || says(link, "master_failover_state") == "no-failover" && !is_replica
    };
    eventually(world, settled) && is_replica
}

/// A replica refuses to grant locks, and its master has sent it nothing that it does not know.
fn check_requests(world: &World, replica: &Replica) {
    let Some(mut link) = link_to(replica) else { return };
    let expected = if replica.has_module { "READONLY" } else { "ERR unknown command" };
    let reply = link.run(&format!("LOCK.ACQUIRE asked {} PX 1000 BLOCK 0", world.mint.fresh()));
    if !matches!(&reply, Reply::Error(line) if line.starts_with(expected)) && reply != Reply::Closed {
        world.court.charge("a replica grants nothing", format!("it answers {reply:?}, not {expected}"));
    }
    let strange = ending::figure(&mut link, "stats", "unexpected_error_replies").unwrap_or_default();
    if strange > 0 {
        world.court.charge("replicas need no module", format!("{strange} commands that the replica did not know"));
    }
}

/// Compares a replica with its master at the end of a run, when nobody writes any more.
pub fn compare_replica(world: &World, scene: &mut Scene) {
    if scene.replica().is_none() {
        if let Err(what) = scene.start_replica(false) {
            return world.court.charge(ALIVE, what);
        }
    }
    if let (Some(mut link), Some(replica)) = (world.connect(0, false), scene.replica()) {
        compare_all(world, replica, &mut link);
    }
    if let Err(what) = scene.end_replica() {
        world.court.charge(ALIVE, what);
    }
}

fn compare_all(world: &World, replica: &Replica, link: &mut Link) -> Option<()> {
    ending::leave_locks(world, link)?;
    if !follows(world, replica, link) {
        world.court.charge(ALIVE, "the replica does not follow its master at the end of the run".to_owned());
        return None;
    }
    let (here, there) = (ending::snapshot(link)?, ending::snapshot(&mut link_to(replica)?)?);
    if here != there {
        world.court.charge(SAME, format!("at the end: {}", ending::differences(&here, &there)));
    }
    check_requests(world, replica);
    Some(())
}
