//! Replicas that come and go, and take over.

use std::thread::sleep;
use std::time::{Duration, Instant};

use support::{Protocol, Reply};

use super::{Disturber, fenced};
use crate::deposit::Deposit;
use crate::ending;
use crate::link::Link;
use crate::scene::{Replica, Scene};
use crate::world::World;

const COMPARED: &str = "locks compared";
const RETURNED: &str = "replicas leave and return";
const SAME: &str = "a replica that has heard everything has the same locks";
const TOLD: &str = "who waits at a server that becomes a replica is told";
const ALIVE: &str = "servers start, and go on";
/// How long servers may take to agree about their roles, and to hand over all data, on a busy machine.
pub const AGREEMENT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

impl Disturber<'_> {
    /// Does something with the replica, or without one.
    pub(super) fn change_replicas(&mut self) {
        let Some(has_module) = self.scene.replica().map(|replica| replica.has_module) else {
            let refuses = self.random.u8(..6) < if self.is_new(fenced::CHECK) { 5 } else { 2 };
            return if refuses && self.has_met_aim() { self.refuse_writes() } else { self.begin_replica() };
        };
        match self.random.u8(..8) {
            _ if has_module && !self.has_met_aim() => self.fail_over(),
            0 => self.end_replica(),
            // Writes are refused where there is none.
            1 | 2 if self.is_new(fenced::CHECK) => self.end_replica(),
            4 | 5 if self.is_new(COMPARED) => self.compare_locks(),
            6 | 7 if self.is_new(RETURNED) => self.leave_and_return(),
            1 | 2 => self.compare_locks(),
            3 => self.leave_and_return(),
            _ if has_module => self.fail_over(),
            _ => self.end_replica(),
        }
    }

    fn begin_replica(&mut self) {
        let has_module = self.random.u8(..4) > 0 || !self.has_met_aim();
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

    /// Has the replica go its own way for a moment, where requests wait for a lock, one of them for a message: they are told
    /// when that is over.
    fn leave_and_return(&mut self) {
        let (world, port) = (self.world, self.scene.server().port());
        let Some(replica) = self.scene.replica().filter(|replica| replica.has_module) else { return };
        let [Some(mut link), Some(mut waiter), Some(mut listener)] = [(); 3].map(|()| link_to(replica)) else { return };
        let (name, notified) = (world.mint.fresh(), world.mint.fresh());
        world.fault(RETURNED, "REPLICAOF NO ONE");
        link.run("REPLICAOF NO ONE");
        link.run(&format!("LOCK.ACQUIRE {name} {} PX 60000", world.mint.fresh()));
        let asked = waiter.send(&[format!("LOCK.ACQUIRE {name} {} PX 60000 BLOCK 0", world.mint.fresh())]);
        if asked.is_none() || !eventually(world, || waits(&mut link, &name.to_string())) {
            return world.court.charge(ALIVE, "nobody waits at a replica that has left its master".to_owned());
        }
        listener.run("SSUBSCRIBE left");
        let noted = link.run(&format!("LOCK.ACQUIRE {name} {notified} PX 60000 BLOCK 0 NOTIFY left"));
        link.run(&format!("REPLICAOF 127.0.0.1 {port}"));
        if noted == Reply::waiting() {
            hears_of_it(world, listener.receive(AGREEMENT), &format!("lost 0 0 {notified} {name}"));
        }
        match waiter.receive(AGREEMENT) {
            Some(Reply::Closed) => {}
            Some(Reply::Error(line)) if line.starts_with("UNBLOCKED") => {}
            other => {
                let text = format!("who waited when its server became a replica was told {other:?}");
                world.court.charge(TOLD, text);
            }
        }
    }

    /// Leaves locks and looks at them on the replica.
    fn compare_locks(&mut self) {
        let world = self.world;
        let Some(deposit) = Deposit::leave(world, 0, &mut self.random) else { return };
        let Some(mut link) = world.connect(0, false) else { return };
        let Some(replica) = self.scene.replica() else { return };
        if !follows(world, replica, &mut link) {
            return;
        }
        world.fault(COMPARED, "the replica is compared");
        let Some(mut other) = link_to(replica) else { return };
        if let Err(what) = deposit.is_the_same_on(&mut link, &mut other) {
            if !deposit.is_flushed(world) {
                world.court.charge(SAME, what);
            }
            return;
        }
        check_requests(world, replica);
        deposit.check(world, 0..=0);
    }

    /// Has the replica become the master, and the master a replica, without losing anything.
    fn fail_over(&mut self) {
        let world = self.world;
        let Some(mut link) = world.connect(0, false) else { return };
        let Some(replica) = self.scene.replica() else { return };
        if !follows(world, replica, &mut link) {
            return;
        }
        let deposit = Deposit::leave(world, 0, &mut self.random);
        let (port, next) = (self.scene.server().port(), replica.server.port());
        ending::count_handovers(world);
        world.note_fault("FAILOVER");
        world.pauses.end();
        world.server.leaves();
        let line = format!("FAILOVER TO 127.0.0.1 {next} TIMEOUT 3000");
        let is_done = world.weather.is_bad_during(|| link.run(&line) == "OK" && hands_over(world, &mut link));
        if is_done {
            world.fault("FAILOVER", &format!("{next} is the master now, after {port}"));
            self.scene.swap();
        }
        world.server.is_back_at(if is_done { next } else { port });
        if let Some(deposit) = deposit {
            let are_found = deposit.check(world, 0..=0);
            self.found(is_done && are_found);
        }
    }
}

/// Who waits for a message when the server becomes a replica hears that the wait is lost.
fn hears_of_it(world: &World, heard: Option<Reply>, expected: &str) {
    let is_told = match &heard {
        Some(Reply::List(parts) | Reply::Push(parts)) => parts.get(2).is_some_and(|text| *text == expected),
        heard => *heard == Some(Reply::Closed),
    };
    if !is_told {
        world.court.charge(TOLD, format!("who waited for a message was told {heard:?} and not {expected}"));
    }
}

/// A connection to the replica itself.
fn link_to(replica: &Replica) -> Option<Link> {
    Link::open(replica.server.port(), 0, false)
}

/// Whether somebody waits for a lock.
pub fn waits(link: &mut Link, name: &str) -> bool {
    let info = link.run(&format!("LOCK.INFO {name}"));
    matches!(info, Reply::List(_)) && info.get("waiters") == 1
}

/// Waits for something; false when it does not come.
pub fn eventually(world: &World, mut condition: impl FnMut() -> bool) -> bool {
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

/// Waits until a server that was told FAILOVER is a replica that follows the new master; false when it is none.
fn hands_over(world: &World, link: &mut Link) -> bool {
    let mut is_replica = false;
    let settled = || {
        let says = |link: &mut Link, name| ending::text(link, "replication", name).unwrap_or_default();
        is_replica = says(link, "role") == "slave";
        is_replica && says(link, "master_link_status") == "up"
            || says(link, "master_failover_state") == "no-failover" && !is_replica
    };
    eventually(world, settled);
    is_replica
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
