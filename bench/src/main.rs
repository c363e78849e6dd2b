//! `make bench`: measures redis-lock beside what people lock with today, in one run on one server, and holds the ratios
//! to the bars of the project.

mod baseline;
mod callgrind;
mod contention;
mod cost;
mod cycles;
mod engine;
mod ground;
mod handovers;
mod instructions;
mod lease_end;
mod memory;
mod overhead;
mod packages;
mod profile;
mod progress;
mod protocols;
mod report;
mod scripts;
mod section;
mod statistics;
mod throughput;
mod waking;

use std::panic::catch_unwind;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Parser, Subcommand};

use report::{Report, Run};
use section::{Effort, Section};

/// Measures redis-lock beside what people lock with today. Ends with status 1 if a bar is missed or a part breaks.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    role: Option<Role>,
    /// Everything once and small, to see that it works: the figures mean little and are held to no bar
    #[arg(long)]
    short: bool,
    /// The folder for the report; docs/benchmarks by default, none with --short
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Only these sections, whose results replace the earlier ones in the report
    #[arg(value_parser = PossibleValuesParser::new(names()))]
    sections: Vec<String>,
}

/// What this program is started for by itself.
#[derive(Subcommand)]
enum Role {
    #[command(hide = true)]
    Worker(packages::WorkerOptions),
}

type Measure = fn(Effort) -> Section;

/// Every section in the order of the report: its name and what measures it.
const SECTIONS: &[(&str, Measure)] = &[
    ("instructions", instructions::measure),
    ("throughput", throughput::measure),
    ("handovers", handovers::measure),
    ("waking", waking::measure),
    ("packages", packages::measure),
    ("lease_end", lease_end::measure),
    ("cost", cost::measure),
    ("overhead", overhead::measure),
    ("memory", memory::measure),
    ("profile", profile::measure),
];

fn names() -> Vec<&'static str> {
    SECTIONS.iter().map(|&(name, _)| name).collect()
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(Role::Worker(worker)) = &options.role {
        packages::run_worker(worker);
        return ExitCode::SUCCESS;
    }
    let effort = if options.short { Effort::Short } else { Effort::Full };
    let out = options.out.or_else(|| effort.choose(Some(support::repository().join("docs/benchmarks")), None));
    let wanted = |name: &str| options.sections.is_empty() || options.sections.iter().any(|section| section == name);
    let sections: Vec<_> = SECTIONS.iter().filter(|(name, _)| wanted(name)).collect();

    let mut report = Report::new(Run::begin(effort), out, names());
    let mut broken = Vec::new();
    for (number, (name, measure)) in (1..).zip(&sections) {
        eprintln!("[{number}/{}] {name}", sections.len());
        // A part that breaks does not take the results of the others with it.
        let done =
            catch_unwind(|| measure(effort)).map_err(|_| "it panicked".into()).and_then(|found| report.add(found));
        if let Err(error) = done {
            broken.push(format!("Broken: {name}: {error}"));
        }
    }
    println!("{}", report.summary());
    broken.iter().for_each(|what| println!("{what}"));
    let held = effort == Effort::Short || report.every_bar_is_met();
    if held && broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
