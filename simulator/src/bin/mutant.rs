//! Runs histories until one fails with certain words. The program `hunt` builds this with each of the mutants.
//!
//!     mutant WORDS COUNT          runs the seeds from 1 to COUNT
//!     mutant WORDS COUNT INPUT    runs the history that the bytes of a file make
//!
//! It writes one line: the history, and the message of the checker, separated by `: `. If no history fails, it ends
//! with status 1.

use std::env;
use std::fs;
use std::panic;
use std::process::ExitCode;

use simulator::seed::{failure_of, failure_of_input};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [words, count, input @ ..] = arguments.as_slice() else { return usage() };
    let Ok(count) = count.parse() else { return usage() };
    // A history that panics is a result here.
    panic::set_hook(Box::new(|_| {}));
    let found = match input {
        [] => find(words, count),
        [path] => fs::read(path)
            .ok()
            .and_then(|bytes| failure_of_input(&bytes))
            .filter(|why| why.contains(words))
            .map(|why| format!("input: {why}")),
        _ => return usage(),
    };
    match found {
        Some(found) => {
            println!("{found}");
            ExitCode::SUCCESS
        }
        None => ExitCode::FAILURE,
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: mutant WORDS COUNT [INPUT]");
    ExitCode::from(2)
}

/// Returns the first seed that fails with these words, and the message of its failure.
fn find(words: &str, count: u64) -> Option<String> {
    (1..=count).find_map(|seed| {
        let why = failure_of(seed).filter(|why| why.contains(words))?;
        Some(format!("{seed}: {why}"))
    })
}
