//! The server's work in instructions. A server runs under `valgrind --tool=callgrind`, which counts every instruction of the
//! process outside the kernel, and one connection sends the same commands again and again.
//!
//! Start, preparation and end cost the same however long the run is. So the difference of two runs of different length is the
//! cost of the cycles between them. bench/baseline/steady.c makes the server's randomness and clock the same in every run.

mod background;
mod count;
pub mod cycles;
mod workload;

use std::process::Command;
use std::{fs, iter};

use rayon::prelude::*;
use support::{Library, Setup};
use tempfile::TempDir;

pub use background::Watched;
pub use count::Count;
pub use workload::{Line, Module, Workload};

use crate::baseline;
use crate::report::Effort;

/// The server's own timer is as slow as possible and does not depend on load.
const CONFIG: &str = "hz 1\ndynamic-hz no\nactiverehashing no\nappendonly no";

/// How much is run.
#[derive(Clone, Copy)]
pub struct Lengths {
    /// Cycles in both runs, in which tables grow and caches fill.
    short: u64,
    /// Cycles that only the longer run has.
    more: u64,
    /// The seeds of the server's randomness.
    seeds: usize,
    /// Repeats with the first seed, which show whether the count is the same.
    again: usize,
}

impl Lengths {
    pub fn of(effort: Effort) -> Self {
        effort.choose(
            Self { short: 500, more: 2000, seeds: 3, again: 1 },
            Self { short: 20, more: 100, seeds: 1, again: 0 },
        )
    }

    pub fn longest(self) -> u64 {
        self.short + self.more
    }

    /// For the report.
    pub fn method(self) -> String {
        format!(
            "Counted by `valgrind --tool=callgrind`, outside the kernel, with one connection. A number is the difference of a \
             run of {} cycles and one of {}, per cycle, and the mean over {} seeds of the server's hash tables.",
            self.longest(),
            self.short,
            self.seeds
        )
    }
}

/// Instructions per cycle of each workload.
pub fn counts(workloads: &[Workload], lengths: Lengths) -> Vec<Count> {
    let seeds = || (0..lengths.seeds).chain(iter::repeat_n(0, lengths.again));
    let runs = workloads.iter().flat_map(|workload| seeds().map(move |seed| (workload, seed))).collect();
    let totals = run_all(runs, lengths);
    let per_cycle: Vec<f64> = totals.iter().map(|[short, long]| (long - short) / lengths.more as f64).collect();
    per_cycle.chunks(lengths.seeds + lengths.again).map(|chunk| Count::of(chunk, lengths.seeds)).collect()
}

/// Runs each workload with its seed at both lengths. Several run at the same time, which changes no count.
fn run_all(runs: Vec<(&Workload, usize)>, lengths: Lengths) -> Vec<[f64; 2]> {
    require_valgrind();
    let (peer, steady) = (baseline::peer(), Steady::new());
    let measure = |(workload, seed): (&Workload, usize)| {
        let (setup, environment) = (workload.setup(&peer).config(CONFIG), steady.environment(seed));
        [lengths.short, lengths.longest()].map(|cycles| total(&run(workload, &setup, &environment, cycles)))
    };
    runs.into_par_iter().map(measure).collect()
}

/// Returns callgrind's output about a server that ran that number of cycles.
fn run(workload: &Workload, setup: &Setup, environment: &[String], cycles: u64) -> String {
    let folder = folder();
    let valgrind = valgrind(&folder, "%p", ["--dump-line=no".to_owned()]);
    let runner: Vec<&str> = iter::once("env").chain(environment.iter().chain(&valgrind).map(String::as_str)).collect();
    let mut server = setup.clone().run_by(&runner).start();
    let mut client = server.client();
    let process = client.info("server", "process_id").expect("the server has a process");
    // Connections stay open to the end: the number that closes in one iteration of the event loop is random.
    let _others = workload.drive(&server, &mut client, cycles);
    server.shut_down("NOSAVE");
    fs::read_to_string(folder.path().join(process)).expect("callgrind's output, which it writes at the server's end")
}

/// All instructions of a run, by callgrind's output.
fn total(output: &str) -> f64 {
    let number = output.lines().find_map(|line| line.strip_prefix("summary:").or(line.strip_prefix("totals:")));
    number.and_then(|number| number.trim().parse().ok()).expect("a total in callgrind's output")
}

/// The randomness and the clock of a server.
struct Steady {
    library: Library,
    /// What servers read instead of /dev/urandom, a file for each seed.
    seeds: TempDir,
}

impl Steady {
    fn new() -> Self {
        Self { library: baseline::steady(), seeds: folder() }
    }

    /// The variables of a server's environment.
    fn environment(&self, seed: usize) -> [String; 2] {
        // More than any server reads.
        const LENGTH: usize = 4096;
        let file = self.seeds.path().join(seed.to_string());
        fs::write(&file, format!("{seed:<LENGTH$}")).expect("a writable folder");
        [format!("LD_PRELOAD={}", self.library.path().display()), format!("RANDOMNESS={}", file.display())]
    }
}

/// The command that runs a server and writes a file of that name into the folder.
fn valgrind(folder: &TempDir, name: &str, options: impl IntoIterator<Item = String>) -> Vec<String> {
    // A script may start the server with `exec`, which counts as a child.
    let command = ["valgrind", "--quiet", "--tool=callgrind", "--trace-children=yes"].map(str::to_owned);
    let output = format!("--callgrind-out-file={}/{name}", folder.path().display());
    command.into_iter().chain(options).chain([output]).collect()
}

fn folder() -> TempDir {
    TempDir::with_prefix("redis-lock-bench-").expect("a temporary folder")
}

fn require_valgrind() {
    let found = Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success());
    assert!(found, "valgrind is missing: run scripts/setup bench, or install it");
}
