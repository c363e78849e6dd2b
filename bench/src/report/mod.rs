//! Shows what was measured: as tables on the terminal, and in a folder as JSON, Markdown and plots.

mod figure;
mod grid;
mod page;
mod plot;
mod results;
mod run;

#[cfg(test)]
mod made_up;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

pub use run::Run;

use crate::section::{Effort, Section};
use grid::Grid;
use results::{Record, Results};

/// The report of one run, which grows with each section.
pub struct Report {
    run: Run,
    /// The folder it is kept in, if it is kept.
    folder: Option<PathBuf>,
    /// The names of all sections, in order.
    names: Vec<&'static str>,
    measured: Vec<Record>,
}

impl Report {
    pub fn new(run: Run, folder: Option<PathBuf>, names: Vec<&'static str>) -> Self {
        Self { run, folder, names, measured: Vec::new() }
    }

    /// Shows a section and puts it in the place of its earlier result in the folder, where others' results stay.
    pub fn add(&mut self, section: Section) -> Result<(), Box<dyn Error>> {
        let record = Record::new(section, self.run.clone())?;
        println!("\n{}\n{}", record.title, Grid::of_figures(&record.table).to_terminal());
        if !record.bars.is_empty() {
            println!("{}", Grid::of_bars(&record.bars).to_terminal());
        }
        if let Some(folder) = &self.folder {
            let mut results = Results::load(folder)?;
            results.put(record.clone(), &self.names);
            save(&results, folder)?;
        }
        self.measured.push(record);
        Ok(())
    }

    pub fn every_bar_is_met(&self) -> bool {
        self.measured.iter().flat_map(|record| &record.bars).all(|bar| bar.is_met())
    }

    /// How this run went as a whole, in a few lines.
    pub fn summary(&self) -> String {
        let bars: Vec<_> = self.measured.iter().flat_map(|record| &record.bars).collect();
        let missed: Vec<_> =
            bars.iter().filter(|bar| !bar.is_met()).map(|bar| format!("\nMissed: {}", bar.what)).collect();
        let met = bars.len() - missed.len();
        let warning = match self.run.effort {
            Effort::Full => "",
            Effort::Short => "\nThis was the short form: the figures show that every part works, and mean little.",
        };
        format!("\n{met} of {} bars met on {}{}{warning}", bars.len(), self.run, missed.concat())
    }
}

/// Writes everything anew, so that the folder is always of one piece.
fn save(results: &Results, folder: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(folder)?;
    results.save(folder)?;
    fs::write(folder.join("README.md"), page::page(&results.sections))?;
    for record in &results.sections {
        if let Some(picture) = plot::draw(record)? {
            fs::write(folder.join(plot::file_name(record)), picture)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_that_is_measured_leaves_the_others_in_the_folder() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let out = folder.path().join("new/folder");
        for name in ["memory", "latency"] {
            let mut report = Report::new(made_up::run(Effort::Full), Some(out.clone()), vec!["latency", "memory"]);
            report.add(Section { name, ..made_up::section() }).expect("a folder to write in");
        }
        let names = Results::load(&out).expect("results").sections.into_iter().map(|record| record.name);
        assert_eq!(names.collect::<Vec<_>>(), ["latency", "memory"]);
        let page = fs::read_to_string(out.join("README.md")).expect("a page");
        for picture in ["latency.svg", "memory.svg"] {
            assert!(page.contains(picture) && out.join(picture).is_file(), "{picture}");
        }
    }

    #[test]
    fn the_summary_counts_bars_and_names_those_that_are_missed() {
        let mut report = Report::new(made_up::run(Effort::Short), None, vec!["latency"]);
        assert!(report.every_bar_is_met(), "there is none");
        report.add(made_up::section()).expect("a section that fits");
        assert!(!report.every_bar_is_met());
        let summary = report.summary();
        assert!(summary.contains("1 of 2 bars met") && summary.contains("Missed: fairness"), "{summary}");
        assert!(summary.contains("mean little"), "{summary}");
    }
}
