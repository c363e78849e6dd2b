//! What happens to a master, and how it ends.

use std::fmt;
use std::thread::sleep;
use std::time::Duration;

use clap::ValueEnum;

use crate::scene::{Ports, Scene};
use crate::settings::DELAY;

/// How long after the promotion the old master stays as it is, in milliseconds: clients of both go on meanwhile.
const AFTER_FREEZE_MS: std::ops::Range<u64> = 0..300;
const AFTER_CUT_MS: std::ops::Range<u64> = 0..3500;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Fault {
    /// kill -9
    Kill,
    /// kill -9 behind replication that is late by half a second, and a promotion at once
    LateKill,
    /// SIGSTOP, and SIGCONT after the promotion
    Freeze,
    /// Nothing passes between the master and the others
    Cut,
    /// The master hears nobody
    Deaf,
    /// Nobody hears the master
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

    /// Whether an operator has a replica take over, without waiting until the others see that the master is gone.
    pub fn is_seen_at_once(self, random: &mut fastrand::Rng) -> bool {
        self == Self::LateKill || random.bool()
    }

    /// What comes before the fault.
    pub fn prepare(self, scene: &Scene, master: usize) {
        if self == Self::LateKill {
            scene.delay_replication(master, DELAY);
            // Replication is late from now on; what was sent before arrives.
            sleep(2 * DELAY);
        }
    }

    pub fn strike(self, scene: &mut Scene, master: usize) {
        match self {
            Self::Kill | Self::LateKill => scene.kill(master),
            Self::Freeze => scene.freeze(master),
            Self::Cut | Self::Deaf | Self::Mute => {
                for other in scene.hosts_beside(master) {
                    if self != Self::Mute {
                        scene.network.cut(other, master);
                    }
                    if self != Self::Deaf {
                        scene.network.cut(master, other);
                    }
                }
            }
        }
    }

    /// Ends the fault, some time after the promotion.
    pub fn end(self, scene: &mut Scene, old: usize, master: usize, ports: &Ports, random: &mut fastrand::Rng) {
        match self {
            Self::Kill | Self::LateKill => {
                scene.network.heal();
                scene.restart(old, master);
                scene.publish(ports);
            }
            Self::Freeze => {
                sleep(Duration::from_millis(random.u64(AFTER_FREEZE_MS)));
                scene.thaw(old);
            }
            Self::Cut | Self::Deaf | Self::Mute => {
                sleep(Duration::from_millis(random.u64(AFTER_CUT_MS)));
                scene.network.heal();
            }
        }
    }
}
