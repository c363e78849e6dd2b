//! Replicas that come and go, and take over.

use support::Reply;

use super::{Faults, contention};
use crate::durability::Probe;
use crate::link::Link;
use crate::report::Rule;
use crate::run::Run;
use crate::servers::{Replica, Servers};
use crate::snapshot;

const ALIVE: Rule = "servers start, and go on";

impl Faults<'_> {
    pub(super) fn change_replicas(&mut self) {
        let run = self.run;
        let Some(has_module) = self.servers.replica.as_ref().map(|replica| replica.has_module) else {
            let refuses = self.random.u8(..6) < if self.is_new(contention::FENCED) { 5 } else { 2 };
            if refuses && self.has_met_aim() {
                return self.refuse_writes();
            }
            let has_module = self.random.u8(..4) > 0 || !self.has_met_aim();
            run.make_fault("replicas", &format!("a replica starts, with the module: {has_module}"));
            return check_alive(run, self.servers.start_replica(has_module));
        };
        match self.random.u8(..8) {
            _ if has_module && !self.has_met_aim() => self.fail_over(),
            // Writes are refused without a replica.
            0..3 => self.end_replica(),
            3 | 4 => self.leave_and_return(),
            _ if has_module => self.fail_over(),
            _ => self.end_replica(),
        }
    }

    fn end_replica(&mut self) {
        if let Some((_, replica)) = self.follower() {
            check_requests(self.run, replica);
        }
        self.run.make_fault("replicas end", "the replica is killed");
        check_alive(self.run, self.servers.end_replica());
    }

    /// The replica leaves its master for a moment, and is a master itself.
    fn leave_and_return(&mut self) {
        let (run, port) = (self.run, self.servers.server().port());
        let Some(mut link) = self.servers.replica.as_ref().and_then(|replica| link_to(run, replica)) else { return };
        run.make_fault("replicas leave and return", "REPLICAOF NO ONE");
        link.run("REPLICAOF NO ONE");
        run.rest(self.some_ms(1..100));
        link.run(&format!("REPLICAOF 127.0.0.1 {port}"));
    }

    fn fail_over(&mut self) {
        let run = self.run;
        let Some((mut link, replica)) = self.follower() else { return };
        let (port, next) = (self.servers.server().port(), replica.server.port());
        let probe = Probe::take(run, 0, &mut self.random);
        run.fault("FAILOVER");
        run.evidence.changes.begin(());
        let line = format!("FAILOVER TO 127.0.0.1 {next} TIMEOUT 3000");
        let is_done = run.evidence.stalls.during(|| link.run(&line) == "OK" && hands_over(run, port));
        if is_done {
            run.make_fault("FAILOVER", &format!("{next} is the master now, after {port}"));
            self.servers.swap();
        }
        run.server_is_back_at(if is_done { next } else { port });
        self.aim_met(probe.is_some_and(|probe| probe.check(0..=0)) && is_done);
    }

    /// A replica that has received all that was written until now, with a connection to its master.
    fn follower(&self) -> Option<(Link, &Replica)> {
        let (mut link, replica) = (self.run.connect(0, false)?, self.servers.replica.as_ref()?);
        follows(self.run, replica, &mut link).then_some((link, replica))
    }
}

fn check_alive(run: &Run, result: Result<(), String>) {
    if let Err(what) = result {
        run.fails(ALIVE, what);
    }
}

fn link_to(run: &Run, replica: &Replica) -> Option<Link> {
    Link::open(&run.history, replica.server.port(), 0, false)
}

/// Waits until the replica has received all that was written until now; false if it does not, because of other faults.
fn follows(run: &Run, replica: &Replica, link: &mut Link) -> bool {
    let is_up = || {
        let status = link_to(run, replica).and_then(|mut link| link.info("replication", "master_link_status"));
        status.as_deref() == Some("up")
    };
    run.eventually(is_up) && {
        link.run("SELECT 0");
        link.run("SET mark x PX 1000");
        link.run("WAIT 1 5000") == 1
    }
}

/// Waits until a server after FAILOVER follows the new master; false if it stays the master. Other faults close connections.
fn hands_over(run: &Run, port: u16) -> bool {
    let mut is_replica = false;
    run.eventually(|| {
        let Some(mut link) = Link::open(&run.history, port, 0, false) else { return false };
        let mut shows = |name, value| link.info("replication", name).as_deref() == Some(value);
        is_replica = shows("role", "slave");
        if is_replica { shows("master_link_status", "up") } else { shows("master_failover_state", "no-failover") }
    });
    is_replica
}

/// A replica grants no lock, and its master has sent it no command that it does not know.
fn check_requests(run: &Run, replica: &Replica) {
    let Some(mut link) = link_to(run, replica) else { return };
    let expected = if replica.has_module { "READONLY" } else { "ERR unknown command" };
    let reply = link.run(&format!("LOCK.ACQUIRE asked {} PX 1000 BLOCK 0", run.tokens.fresh()));
    if !matches!(&reply, Reply::Error(line) if line.starts_with(expected)) && reply != Reply::Closed {
        run.fails("a replica grants nothing", format!("the reply is {reply:?}, not {expected}"));
    }
    let unknown = link.number("stats", "unexpected_error_replies").unwrap_or_default();
    if unknown > 0 {
        run.fails("replicas need no module", format!("{unknown} commands that the replica did not know"));
    }
}

/// Compares a replica with its master, when no client writes any more.
pub fn compare_at_end(run: &Run, servers: &mut Servers) -> Option<()> {
    if servers.replica.is_none() {
        check_alive(run, servers.start_replica(false));
    }
    let (mut link, replica) = (run.connect(0, false)?, servers.replica.as_ref()?);
    let _locks = Probe::take(run, 0, &mut fastrand::Rng::with_seed(0))?;
    if !follows(run, replica, &mut link) {
        run.fails(ALIVE, "the replica does not follow its master at the end of the run");
    }
    let (here, there) = (snapshot::take(&mut link)?, snapshot::take(&mut link_to(run, replica)?)?);
    if here != there {
        run.fails("a replica has the locks of its master", snapshot::differences(&here, &there));
    }
    check_requests(run, replica);
    check_alive(run, servers.end_replica());
    Some(())
}
