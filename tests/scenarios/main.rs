//! The scenarios of this folder, one test each: on the server under test or, with the feature `simulated`, on simulated servers of
//! every kind. `support::scenario` describes their language.

mod runner;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use std::{fs, panic};

use libtest_mimic::{Arguments, Failed, Trial};
use support::scenario::{Scenario, message_of, parse};
use support::{repository, stalls};

/// The options that have a value in the next word.
const WITH_VALUE: [&str; 5] = ["--test-threads", "--skip", "--color", "--format", "--logfile"];

fn main() -> ExitCode {
    let (mut arguments, filters) = arguments();
    let threads = env::var("RUST_TEST_THREADS").ok().and_then(|number| number.parse().ok());
    arguments.test_threads = arguments.test_threads.or(threads);
    stalls::watch();
    // The summary of the tests has the messages.
    panic::set_hook(Box::new(|_| {}));
    let is_chosen = |trial: &Trial| {
        let fits =
            |filter: &String| if arguments.exact { trial.name() == filter } else { trial.name().contains(filter) };
        filters.is_empty() || filters.iter().any(fits)
    };
    let trials = trials().into_iter().filter(is_chosen).collect();
    let result = libtest_mimic::run(&arguments, trials).exit_code();
    match runner::end() {
        Ok(()) => result,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the arguments of the command line, and the filters of names, of which `Arguments` would take one.
fn arguments() -> (Arguments, Vec<String>) {
    let (mut options, mut filters, mut is_value) = (Vec::new(), Vec::new(), true);
    for word in env::args() {
        if is_value || word.starts_with('-') {
            is_value = WITH_VALUE.contains(&word.as_str());
            options.push(word);
        } else {
            filters.push(word);
        }
    }
    (Arguments::from_iter(options), filters)
}

fn trials() -> Vec<Trial> {
    let root = repository().join("tests/scenarios");
    let mut files =
        entries(&root).iter().filter(|path| path.is_dir()).flat_map(|folder| entries(folder)).collect::<Vec<_>>();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "scenario"));
    files.sort();
    files.iter().flat_map(|file| trials_of(&root, file)).collect()
}

/// Returns the tests of one file. One that cannot be read is a test that fails.
fn trials_of(root: &Path, file: &Path) -> Vec<Trial> {
    let inside = file.strip_prefix(root).expect("a file of the folder").with_extension("");
    let topic = inside.display().to_string().replace('/', "::");
    let text = fs::read_to_string(file).map_err(|error| error.to_string());
    let path = file.strip_prefix(repository()).expect("a file of the repository").display().to_string();
    let scenarios = match text.and_then(|text| parse(&text)) {
        Ok(scenarios) => scenarios,
        Err(problem) => return vec![Trial::test(topic, move || Err(Failed::from(format!("{path}: {problem}"))))],
    };
    let is_wanted = |scenario: &Scenario| !(scenario.not_simulated && runner::IS_SIMULATED);
    let trial = |scenario: Scenario| {
        let name = format!("{topic}::{}", scenario.name);
        let path = path.clone();
        Trial::test(name, move || played(&scenario).map_err(|problem| Failed::from(format!("{path}\n{problem}"))))
    };
    scenarios.into_iter().filter(is_wanted).map(trial).collect()
}

/// Plays a scenario, and once more if it fails while the test machine stands still, or soon after.
fn played(scenario: &Scenario) -> Result<(), String> {
    let play = || panic::catch_unwind(|| runner::play(scenario)).map_err(|payload| message_of(&*payload).to_owned());
    let began = Instant::now();
    let first = play();
    match first.is_err().then(|| stalls::forget_stall_since(began)).flatten() {
        None => first,
        Some(stall) => {
            eprintln!("{}: {stall}; played again", scenario.name);
            play().map_err(|problem| format!("{stall}, and then again:\n{problem}"))
        }
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect()
}
