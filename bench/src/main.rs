//! `make bench`: measures redis-lock beside what people lock with today, in one run on one server, and holds the ratios
//! to the bars of the project.

mod report;
mod section;

use clap::Parser;

use section::{Effort, Section};

/// Measures redis-lock beside what people lock with today.
#[derive(Parser)]
struct Options {
    /// Everything once and small, to see that it works: the figures mean little
    #[arg(long)]
    short: bool,
    /// Only these sections, by name
    sections: Vec<String>,
}

/// Every section in the order of the report: its name and what measures it.
const SECTIONS: [(&str, fn(Effort) -> Section); 0] = [];

fn main() {
    let options = Options::parse();
    let effort = if options.short { Effort::Short } else { Effort::Full };
    let wanted = |name: &str| options.sections.is_empty() || options.sections.iter().any(|section| section == name);
    let measured: Vec<Section> =
        SECTIONS.iter().filter(|(name, _)| wanted(name)).map(|(_, measure)| measure(effort)).collect();
    report::print(&measured);
}
