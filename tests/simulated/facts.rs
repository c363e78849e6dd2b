//! Plays each scenario of tests/facts on the simulated server of every kind, in one test each.

use redis_lock::server::ServerKind;
use support::facts;
use support::stage::{Stage, play};

use super::stage::Simulated;

/// Plays one scenario on every kind of server to which it applies.
#[track_caller]
fn shows(name: &str) {
    let scenario = facts::scenario(name);
    for kind in ServerKind::ALL.into_iter().filter(|_| scenario.simulated) {
        let mut server = Simulated::start(kind, &scenario);
        if scenario.is_shown_by(server.kind()) {
            println!("on a simulated {kind:?}");
            play(&mut server, &scenario);
        }
    }
}

support::for_each_fact!(shows);
