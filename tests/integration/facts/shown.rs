//! Each scenario of tests/facts, one test each.

use support::facts;
use support::stage::{Stage, play};

use super::stage::Real;

/// Plays one scenario, unless it is for other servers.
#[track_caller]
fn shows(name: &str) {
    let scenario = facts::scenario(name);
    let mut server = Real::start(&scenario);
    if scenario.is_shown_by(server.kind()) {
        play(&mut server, &scenario);
    }
}

support::for_each_fact!(shows);
