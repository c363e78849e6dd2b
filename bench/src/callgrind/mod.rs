//! Server work in instructions. A server runs under `valgrind --tool=callgrind`, which counts every instruction that the
//! process executes outside the kernel, and one connection sends it the same commands over and over.
//!
//! Start, preparation and end cost the same however long the run is, so the difference of two run lengths is the cost of
//! the cycles between them. Chance and time are taken out of the server by bench/baseline/steady.c.

mod background;
pub mod commands;
mod count;
pub mod cycles;
mod graph;
mod profile;
pub mod shares;
mod workload;

use std::process::Command;
use std::{fs, iter};

use rayon::prelude::*;
use support::{Library, Setup};
use tempfile::TempDir;

pub use background::Watched;
pub use count::Count;
pub use graph::{Calls, Function, Graph};
pub use profile::Profile;
pub use workload::{Module, Workload};

use crate::baseline;
use crate::progress;
use crate::section::Effort;

/// The server's own timer is as slow as may be and does not depend on load.
const CONFIG: &str = "hz 1\ndynamic-hz no\nactiverehashing no\nappendonly no";

/// How much is run.
#[derive(Clone, Copy)]
pub struct Lengths {
    /// Cycles in both runs, in which tables grow and caches fill.
    short: u64,
    /// Cycles that only the longer run has.
    more: u64,
    /// The seeds of the server's chance under which it is done.
    seeds: usize,
    /// How often it is done with the first seed beyond the first time, to see whether it comes out the same.
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

    /// Seeds in the order of measurement.
    fn measurements(self) -> impl Iterator<Item = usize> {
        (0..self.seeds).chain((0..self.again).map(|_| 0))
    }

    /// For the report: how a figure is come by.
    pub fn difference(self) -> String {
        format!(
            "A figure is the difference of a run of {} cycles and one of {}, per cycle.",
            self.longest(),
            self.short
        )
    }

    /// For the report: the same where a figure is a [`Count`].
    pub fn difference_by_seed(self) -> String {
        format!(
            "{} It depends on how the names of commands and keys collide in the server's hash tables, so it is the mean \
             over {} fixed random seeds.",
            self.difference(),
            self.seeds
        )
    }
}

/// Instructions per cycle of each workload. Shows its progress as that of the section.
pub fn counts(section: &'static str, workloads: &[Workload], lengths: Lengths) -> Vec<Count> {
    let measurement = |workload| lengths.measurements().map(move |seed| (workload, seed));
    let totals = run_all(section, workloads.iter().flat_map(measurement).collect(), lengths, graph::total);
    let per_cycle: Vec<f64> = totals.iter().map(|[short, long]| (long - short) / lengths.more as f64).collect();
    per_cycle.chunks(lengths.seeds + lengths.again).map(|chunk| Count::of(chunk, lengths.seeds)).collect()
}

/// Who calls whom at what cost, per cycle of each workload, under the first seed.
pub fn graphs(section: &'static str, workloads: &[Workload], lengths: Lengths) -> Vec<Graph> {
    let measurements = workloads.iter().map(|workload| (workload, 0)).collect();
    let graphs = run_all(section, measurements, lengths, Graph::parse).into_iter();
    graphs.map(|[short, long]| long.less(&short).per(lengths.more)).collect()
}

/// Runs each workload with its seed at both lengths, several at a time: who else uses the machine does not count.
fn run_all<T: Send>(
    section: &'static str,
    measurements: Vec<(&Workload, usize)>,
    lengths: Lengths,
    read: fn(&str) -> T,
) -> Vec<[T; 2]> {
    require_valgrind();
    let (peer, steady) = (baseline::peer(), Steady::new());
    let progress = progress::bar(section, 2 * measurements.len());
    let run = |workload: &Workload, seed, cycles| {
        let setup = workload.setup(&peer).config(CONFIG);
        let result = read(&run(workload, &setup, &steady.environment(seed), cycles));
        progress.inc(1);
        result
    };
    let measure = |(workload, seed)| [lengths.short, lengths.longest()].map(|cycles| run(workload, seed, cycles));
    measurements.into_par_iter().map(measure).collect()
}

/// What callgrind wrote about a server that ran so many cycles.
fn run(workload: &Workload, setup: &Setup, environment: &[String], cycles: u64) -> String {
    let folder = folder();
    let valgrind = valgrind(&folder, "%p", ["--dump-line=no".to_owned()]);
    let runner: Vec<&str> = iter::once("env").chain(environment.iter().chain(&valgrind).map(String::as_str)).collect();
    let mut server = setup.clone().run_by(&runner).start();
    let mut client = server.client();
    let process = client.info("server", "process_id").expect("a server that tells its process");
    // Connections stay open to the end: how many of them are closed in one round of the server's loop is chance.
    let _others = workload.drive(&server, &mut client, cycles);
    server.shut_down("NOSAVE");
    fs::read_to_string(folder.path().join(process)).expect("callgrind's output, which it writes at the server's end")
}

/// What a server takes for chance and time, in place of the system's.
struct Steady {
    library: Library,
    /// What servers read in place of chance, a file for each seed.
    seeds: TempDir,
}

impl Steady {
    fn new() -> Self {
        Self { library: baseline::steady(), seeds: folder() }
    }

    /// What is to be set in the environment of a server.
    fn environment(&self, seed: usize) -> [String; 2] {
        // More than any server reads.
        const LENGTH: usize = 4096;
        let file = self.seeds.path().join(seed.to_string());
        fs::write(&file, format!("{seed:<LENGTH$}")).expect("a writable folder");
        [format!("LD_PRELOAD={}", self.library.path().display()), format!("RANDOMNESS={}", file.display())]
    }
}

/// The command that a server is run by, which writes a file of that name into the folder.
fn valgrind(folder: &TempDir, name: &str, options: impl IntoIterator<Item = String>) -> Vec<String> {
    // A server may be started by a script that gives its process to it, which counts as a child.
    let command = ["valgrind", "--quiet", "--tool=callgrind", "--trace-children=yes"].map(str::to_owned);
    let output = format!("--callgrind-out-file={}/{name}", folder.path().display());
    command.into_iter().chain(options).chain([output]).collect()
}

fn folder() -> TempDir {
    TempDir::with_prefix("redis-lock-bench-").expect("a temporary folder")
}

fn require_valgrind() {
    let found = Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success());
    assert!(found, "valgrind is missing, which counts the instructions: run scripts/setup bench, or install it");
}
