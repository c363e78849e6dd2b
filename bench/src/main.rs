//! `make bench`: measures redis-lock beside what people lock with today, in one run on one server, and holds the ratios
//! to the bars of the project.
//!
//! What is asked, and in which file it is measured, stands in [`sections`]. Instructions are counted by [`callgrind`];
//! time and order are what the clients of the [`engine`] see, which lock by the [`protocols`]. Every measurement gives a
//! [`section`] to the [`report`].

mod baseline;
mod callgrind;
mod engine;
mod progress;
mod protocols;
mod report;
mod section;
mod sections;
mod server_memory;
mod statistics;

use std::panic::catch_unwind;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Parser, Subcommand};

use report::{Report, Run};
use section::Effort;
use sections::{Question, SECTIONS, packages};

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
    #[arg(value_parser = questions())]
    sections: Vec<String>,
}

/// What this program is started for by itself.
#[derive(Subcommand)]
enum Role {
    #[command(hide = true)]
    Worker(packages::WorkerOptions),
}

fn questions() -> PossibleValuesParser {
    SECTIONS.iter().map(|question| PossibleValue::new(question.name).help(question.text)).into()
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
    let questions: Vec<_> = SECTIONS.iter().filter(|question| wanted(question.name)).collect();

    let mut report = Report::new(Run::begin(effort), out, sections::names());
    let mut broken = Vec::new();
    for (number, Question { name, measure, .. }) in (1..).zip(&questions) {
        eprintln!("[{number}/{}] {name}", questions.len());
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
