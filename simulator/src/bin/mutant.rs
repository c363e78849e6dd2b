//! Runs histories until one fails with certain words. The program `hunt` builds this with each of the mutants.
//!
//!     mutant WORDS COUNT          runs the seeds from 1 to COUNT
//!     mutant WORDS COUNT INPUT    runs the history that the bytes of a file make
//!
//! It writes one line: the history, and the message of the checker, separated by `: `. If no history fails with the
//! words, it writes the first one that fails otherwise, if there is one, and ends with status 1.

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
    let failures: Box<dyn Iterator<Item = (String, String)>> = match input {
        [] => Box::new((1..=count).filter_map(|seed: u64| Some((seed.to_string(), failure_of(seed)?)))),
        [path] => {
            let why = fs::read(path).ok().and_then(|bytes| failure_of_input(&bytes));
            Box::new(why.map(|why| ("input".to_owned(), why)).into_iter())
        }
        _ => return usage(),
    };
    let mut other = None;
    for (history, why) in failures {
        if why.contains(words) {
            println!("{history}: {why}");
            return ExitCode::SUCCESS;
        }
        other.get_or_insert(format!("{history}: {why}"));
    }
    other.iter().for_each(|other| println!("{other}"));
    ExitCode::FAILURE
}

fn usage() -> ExitCode {
    eprintln!("usage: mutant WORDS COUNT [INPUT]");
    ExitCode::from(2)
}
