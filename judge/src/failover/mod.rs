//! A model of failover: the claim of docs/guides/failover.md, that a lock never has two holders.
//!
//! A master (M) has two replicas (R and Q). An authority promotes a replica at any moment, whether the master has failed
//! or not, and nodes hear of it at any later moment or never. Two clients ask any node that is a master. Replication is
//! asynchronous: a replica has any earlier value of the key. Messages can be lost. Time passes in ticks for all nodes
//! alike, and wall clocks can differ. The checker visits all states that there are.
//!
//! A request and its reply take no time. That loses nothing: a request that arrives later is one that is sent later,
//! and a client that receives its reply later acts as the holder for a shorter time. A reply can be lost.
//!
//! [`rules`] has the conditions of the guide, [`server`] what the module does, [`model`] what can happen.

mod action;
mod model;
mod rules;
mod server;
mod state;

use std::time::Instant;

use stateright::{Checker, Model};

use action::Action;
use model::{Failover, ONE_HOLDER, PROMOTED_GRANTS};
use rules::{Variant, claims, dropped};
use state::{Faults, State};

/// What the checker has found.
struct Outcome {
    states: usize,
    /// The actions until the lock has two holders.
    story: Option<Vec<Action>>,
    /// A server that was promoted, or has started, grants the lock in some state.
    grants: bool,
}

/// Checks the claim, and that each condition is needed, and prints what happens without it.
///
/// # Errors
///
/// The claim does not hold, or a condition is not needed.
pub fn run() -> Result<(), String> {
    for Variant { what, rules, faults } in claims() {
        let started = Instant::now();
        let outcome = check(rules, faults);
        println!("{what}: {} states, {:.1} s", outcome.states, started.elapsed().as_secs_f64());
        if let Some(story) = outcome.story {
            tell(&story);
            return Err(format!("the claim does not hold: {what}"));
        }
        if !outcome.grants {
            return Err(format!("a promoted server never grants: {what}"));
        }
    }
    for Variant { what, rules, faults } in dropped() {
        println!("\n{what}");
        let story = check(rules, faults).story.ok_or_else(|| format!("no counterexample: {what}"))?;
        tell(&story);
    }
    Ok(())
}

fn check(rules: rules::Rules, faults: Faults) -> Outcome {
    let checker = Failover { rules, faults }.checker().threads(2).spawn_bfs().join();
    // The path can go on after the first state that is wrong.
    let story = checker.discovery(ONE_HOLDER).map(|path| {
        let steps = path.into_vec();
        let is_wrong = |(state, _): &(State, Option<Action>)| state.holders() > 1;
        let end = steps.iter().position(is_wrong).unwrap_or(steps.len());
        steps[..end].iter().filter_map(|(_, action)| *action).collect()
    });
    let grants = checker.discovery(PROMOTED_GRANTS).is_some();
    Outcome { states: checker.unique_state_count(), story, grants }
}

/// Prints a story, with the time in ticks.
fn tell(story: &[Action]) {
    let mut time = 0;
    for action in story {
        match action {
            Action::Tick => time += 1,
            _ => println!("  {time:2}  {action}"),
        }
    }
    println!("      Both hold the lock.");
}

#[cfg(test)]
mod tests;
