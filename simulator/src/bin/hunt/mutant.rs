//! The hunt for a mutant of the module.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use simulator::seed::{failure_of, failure_of_input};

use crate::outcome::{Found, MAX_HISTORIES, Outcome};
use crate::patch::Patch;

/// Runs the program that was built with a patch until a history fails with the words of the patch. The same history must hold
/// without the patch.
pub fn hunt(patch: &Patch, program: &Path) -> Outcome {
    let begin = Instant::now();
    let result = find(patch, program);
    Outcome { name: patch.name.clone(), time: begin.elapsed(), result }
}

fn find(patch: &Patch, program: &Path) -> Result<Found, String> {
    let mut command = Command::new(program);
    command.args([&patch.says, &MAX_HISTORIES.to_string()]).args(&patch.input);
    let output = command.output().map_err(|error| format!("{}: {error}", program.display()))?;
    let line = String::from_utf8_lossy(&output.stdout);
    let Some((history, why)) = line.trim_end().split_once(": ") else {
        return Err(format!("none of {MAX_HISTORIES} histories fails"));
    };
    if !output.status.success() {
        return Err(format!("{history} fails otherwise: {why}"));
    }
    let without = match &patch.input {
        Some(input) => {
            failure_of_input(&std::fs::read(input).map_err(|error| format!("{}: {error}", input.display()))?)
        }
        None => failure_of(history.parse().map_err(|_| format!("{history} is no seed"))?),
    };
    match without {
        None => Ok(Found { history: history.to_owned(), why: why.to_owned() }),
        Some(why) => Err(format!("{history} fails without the patch, too: {why}")),
    }
}
