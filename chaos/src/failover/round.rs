//! One round: clients contend, the master is struck by a fault and replaced, the fault ends, and all is as before.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::thread::{self, sleep};
use std::time::Duration;

use clap::ValueEnum;
use fastrand::Rng;

use super::client::Client;
use super::contest::{Contest, Stop};
use super::nodes::{NODES, Nodes};
use super::{DELAY, REPLICAS};
use crate::history::HistoryFile;

const CLIENTS: usize = 20;
/// When the fault comes, once there is contention, in milliseconds.
const CALM_MS: Range<u64> = 0..1000;
/// How long the fault lasts after the promotion: clients of both masters go on during this time.
const AFTER_FREEZE_MS: Range<u64> = 0..300;
const AFTER_CUT_MS: Range<u64> = 0..3500;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// kill -9
    Kill,
    /// kill -9 with replication that is late by half a second, and a promotion right after it
    LateKill,
    /// SIGSTOP, and SIGCONT after the promotion
    Freeze,
    /// Nothing passes between the master and the others
    Cut,
    /// The master receives nothing
    Deaf,
    /// Nothing that the master sends arrives
    Mute,
}

impl Fault {
    fn strike(self, nodes: &mut Nodes, master: usize) {
        match self {
            Self::LateKill => {
                (0..NODES).filter(|node| *node != master).for_each(|node| nodes.network.slow(master, node, DELAY));
                // Replication is late from now on; all that was sent before arrives.
                sleep(2 * DELAY);
                nodes.kill(master);
            }
            Self::Kill => nodes.kill(master),
            Self::Freeze => nodes.freeze(master),
            Self::Cut | Self::Deaf | Self::Mute => {
                for other in nodes.other_hosts(master) {
                    let ways = [(Self::Mute, other, master), (Self::Deaf, master, other)];
                    let cut = ways.into_iter().filter(|(open, ..)| *open != self);
                    cut.for_each(|(_, from, to)| nodes.network.cut(from, to));
                }
            }
        }
    }

    fn end(self, nodes: &mut Nodes, old: usize, master: usize, random: &mut Rng) {
        let mut rest = |range| sleep(Duration::from_millis(random.u64(range)));
        match self {
            Self::Kill | Self::LateKill => {
                nodes.network.heal();
                nodes.restart(old, master);
            }
            Self::Freeze => {
                rest(AFTER_FREEZE_MS);
                nodes.thaw(old);
            }
            Self::Cut | Self::Deaf | Self::Mute => {
                rest(AFTER_CUT_MS);
                nodes.network.heal();
            }
        }
    }
}

#[derive(Default)]
pub struct Outcome {
    pub grants: usize,
    pub grants_of_old: usize,
    pub overlap: Option<String>,
    /// Why the round does not count, if it does not.
    pub disturbance: Option<String>,
    /// Whether the servers did not agree, which does not concern locks. They cannot be used any more.
    pub is_lost: bool,
}

/// The grants of the old master before the fault, and whether the new master was replaced too.
type Course = Result<(usize, Option<String>), Stop>;

pub fn play(nodes: &mut Nodes, fault: Fault, file: (u32, HistoryFile), random: &mut Rng) -> Result<Outcome, String> {
    let lost = |what| Outcome { disturbance: Some(what), is_lost: true, ..Outcome::default() };
    let old = match nodes.wait_until_whole() {
        Ok(old) => old,
        Err(what) => return Ok(lost(what)),
    };
    let contest = Contest::new(nodes.ports(), &nodes.tag, old, file);
    contest.history.fault(&format!("round: {fault:?} of node {old}"));
    let is_silent = matches!(fault, Fault::Kill | Fault::LateKill | Fault::Freeze);
    let (course, stall) = thread::scope(|scope| {
        for number in 0..CLIENTS {
            let client = Client::new(&contest, number, random.fork());
            scope.spawn(move || client.run());
        }
        let watcher = scope.spawn(|| contest.watch_stalls(is_silent.then_some(old)));
        let course = run(nodes, fault, old, &contest, random);
        contest.is_over.store(true, Ordering::Relaxed);
        (course, watcher.join().expect("a watcher that has not panicked"))
    });
    let overlap = contest.history.failures.first().map(str::to_owned);
    match (course, stall) {
        (Ok((before, replaced)), stall) => {
            let (grants, disturbance) = ((0..NODES).map(|node| contest.granted(node)).sum(), stall.or(replaced));
            let grants_of_old = contest.granted(old) - before;
            Ok(Outcome { grants, grants_of_old, overlap, disturbance, is_lost: false })
        }
        (Err(Stop::Lost(what)), _) => Ok(Outcome { overlap, ..lost(what) }),
        (Err(Stop::Stuck(what)), stall) => stall.map(|stall| lost(format!("{what}; {stall}"))).ok_or(what),
    }
}

fn run(nodes: &mut Nodes, fault: Fault, old: usize, contest: &Contest, random: &mut Rng) -> Course {
    contest.wait_for_grants(old)?;
    sleep(Duration::from_millis(random.u64(CALM_MS)));
    fault.strike(nodes, old);
    let before = contest.granted(old);
    contest.history.fault(&format!("node {old} is struck: {fault:?}"));
    // An operator promotes a replica, before the others notice that the master is gone.
    if fault == Fault::LateKill || random.bool() {
        nodes.promote_a_replica_of(old);
    }
    let new = nodes.wait_for_promotion(old).map_err(Stop::Lost)?;
    contest.history.fault(&format!("node {new} is a master, port {}", contest.ports[new]));
    contest.master.store(new, Ordering::Relaxed);
    // Nothing but the period may suspend grants now, also before all replicas are back.
    nodes.require_replicas(new, 0);
    fault.end(nodes, old, new, random);
    let last = nodes.wait_until_whole().map_err(Stop::Lost)?;
    nodes.require_replicas(last, REPLICAS);
    contest.wait_for_grants(last)?;
    Ok((before, (new != last).then(|| format!("node {new} was replaced by node {last}"))))
}
