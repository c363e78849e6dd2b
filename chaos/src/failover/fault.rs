//! What happens to a master, and how it ends.

use std::fmt;
use std::thread::sleep;
use std::time::Duration;

use clap::ValueEnum;

use super::DELAY;
use super::nodes::{Nodes, Ports};

/// How long the fault lasts after the promotion, in milliseconds: clients of both masters go on during this time.
const AFTER_FREEZE_MS: std::ops::Range<u64> = 0..300;
const AFTER_CUT_MS: std::ops::Range<u64> = 0..3500;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
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

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "kill -9",
            Self::LateKill => "kill -9, replication late",
            Self::Freeze => "SIGSTOP, SIGCONT",
            Self::Cut => "cut off",
            Self::Deaf => "cut off from what others send",
            Self::Mute => "cut off with what it sends",
        })
    }
}

impl Fault {
    /// Whether the old master does not answer for a while.
    pub fn silences(self) -> bool {
        matches!(self, Self::Kill | Self::LateKill | Self::Freeze)
    }

    /// Whether an operator promotes a replica, before the others notice that the master is gone.
    pub fn is_noticed_early(self, random: &mut fastrand::Rng) -> bool {
        self == Self::LateKill || random.bool()
    }

    /// What comes before the fault.
    pub fn prepare(self, nodes: &Nodes, master: usize) {
        if self == Self::LateKill {
            nodes.delay_replication(master, DELAY);
            // Replication is late from now on; all that was sent before arrives.
            sleep(2 * DELAY);
        }
    }

    pub fn strike(self, nodes: &mut Nodes, master: usize) {
        match self {
            Self::Kill | Self::LateKill => nodes.kill(master),
            Self::Freeze => nodes.freeze(master),
            Self::Cut | Self::Deaf | Self::Mute => {
                for other in nodes.other_hosts(master) {
                    if self != Self::Mute {
                        nodes.network.cut(other, master);
                    }
                    if self != Self::Deaf {
                        nodes.network.cut(master, other);
                    }
                }
            }
        }
    }

    /// Ends the fault, some time after the promotion.
    pub fn end(self, nodes: &mut Nodes, old: usize, master: usize, ports: &Ports, random: &mut fastrand::Rng) {
        match self {
            Self::Kill | Self::LateKill => {
                nodes.network.heal();
                nodes.restart(old, master);
                nodes.publish(ports);
            }
            Self::Freeze => {
                sleep(Duration::from_millis(random.u64(AFTER_FREEZE_MS)));
                nodes.thaw(old);
            }
            Self::Cut | Self::Deaf | Self::Mute => {
                sleep(Duration::from_millis(random.u64(AFTER_CUT_MS)));
                nodes.network.heal();
            }
        }
    }
}
