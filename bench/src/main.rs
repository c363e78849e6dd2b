//! `make bench`: measures redis-lock and the lock libraries of today on one server, and compares the ratios with limits.
//!
//! [`sections`] lists the measurements. Instructions are counted by [`callgrind`]. Times are seen by clients: those of this
//! process in a [`crowd`], which lock by the [`protocols`], and those of the published packages in a [`contest`].

mod baseline;
mod callgrind;
mod connection;
mod contest;
mod crowd;
mod many;
mod place;
mod protocols;
mod report;
mod sections;
mod statistics;

use std::panic::catch_unwind;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Parser, Subcommand};

use report::{Effort, Report};
use sections::SECTIONS;

/// Measures redis-lock and the lock libraries of today. Ends with status 1 if a limit is missed or a section fails.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    role: Option<Role>,
    /// Run everything once and small, to see that it works: limits are not checked
    #[arg(long)]
    short: bool,
    /// The folder for the tables, one Markdown file for each section
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
    /// Only these sections
    #[arg(value_parser = section_names())]
    sections: Vec<String>,
}

/// This program as a process of a contest.
#[derive(Subcommand)]
enum Role {
    #[command(hide = true)]
    Worker(contest::WorkerOptions),
}

fn section_names() -> PossibleValuesParser {
    SECTIONS.iter().map(|(name, help, _)| PossibleValue::new(*name).help(*help)).into()
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(Role::Worker(worker)) = &options.role {
        contest::run_worker(worker);
        return ExitCode::SUCCESS;
    }
    let effort = if options.short { Effort::Short } else { Effort::Full };
    let is_wanted = |name: &str| options.sections.is_empty() || options.sections.iter().any(|wanted| wanted == name);
    let mut report = Report::new(effort, options.out.clone());
    let mut failed = false;
    for (name, _, measure) in SECTIONS.iter().filter(|(name, ..)| is_wanted(name)) {
        eprintln!("measuring {name}");
        // The other sections are measured also if this one fails.
        match catch_unwind(|| measure(effort)) {
            Ok(section) => report.add(name, &section),
            Err(_) => {
                println!("Failed: {name}");
                failed = true;
            }
        }
    }
    report.write_page(SECTIONS.iter().map(|(name, ..)| *name));
    println!("{}", report.summary());
    let met = effort == Effort::Short || report.missed.is_empty();
    if met && !failed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
