//! The latest result of every section, as kept in results.json.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::run::Run;
use crate::section::{Bar, Plot, Section, Table};

const FILE: &str = "results.json";

/// A section and the run that measured it: a section may be measured again without the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub name: String,
    pub title: String,
    pub run: Run,
    pub method: String,
    pub table: Table,
    pub bars: Vec<Bar>,
    pub plot: Option<Plot>,
}

impl Record {
    /// Err where the section's parts do not fit together, or a bar has no figure.
    pub fn new(section: Section, run: Run) -> Result<Self, String> {
        let Section { name, title, method, table, bars, plot } = section;
        let columns = table.headings.len().saturating_sub(1);
        if let Some(row) = table.rows.iter().find(|row| row.cells.len() != columns) {
            return Err(format!("{name}: {columns} columns of figures, but {} in {:?}", row.cells.len(), row.label));
        }
        if let Some(bar) = bars.iter().find(|bar| !bar.value.is_finite()) {
            return Err(format!("{name}: {} is {}", bar.what, bar.value));
        }
        let drawn = match &plot {
            Some(Plot::Bars { column, .. }) => *column < columns,
            Some(Plot::Lines { at, .. }) => at.len() == columns,
            None => true,
        };
        if !drawn {
            return Err(format!("{name}: {plot:?} does not fit {columns} columns of figures"));
        }
        Ok(Self { name: name.to_owned(), title: title.to_owned(), run, method, table, bars, plot })
    }
}

#[derive(Default, Serialize, Deserialize)]
pub struct Results {
    pub sections: Vec<Record>,
}

impl Results {
    /// What the folder has; nothing where it has no results yet.
    pub fn load(folder: &Path) -> io::Result<Self> {
        match fs::read_to_string(folder.join(FILE)) {
            Ok(text) => Ok(serde_json::from_str(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Takes a record in the place of an earlier one. Sections that are not among `names` exist no more.
    pub fn put(&mut self, record: Record, names: &[&str]) {
        self.sections.retain(|other| other.name != record.name);
        self.sections.push(record);
        let position = |record: &Record| names.iter().position(|name| *name == record.name);
        self.sections.retain(|record| position(record).is_some());
        self.sections.sort_by_key(position);
    }

    pub fn save(&self, folder: &Path) -> io::Result<()> {
        fs::write(folder.join(FILE), serde_json::to_string_pretty(self)? + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::made_up;
    use crate::section::Effort;

    const NAMES: [&str; 3] = ["instructions", "latency", "memory"];

    fn named(name: &'static str, run: Run) -> Record {
        Record::new(Section { name, ..made_up::section() }, run).expect("a section that fits")
    }

    #[test]
    fn a_section_that_is_measured_again_leaves_the_others_and_keeps_its_place() {
        let mut results = Results::default();
        for name in ["memory", "of old", "instructions", "latency"] {
            results.put(named(name, made_up::run(Effort::Short)), &NAMES);
        }
        results.put(named("latency", made_up::run(Effort::Full)), &NAMES);
        let kept: Vec<_> = results.sections.iter().map(|record| (record.name.as_str(), record.run.effort)).collect();
        assert_eq!(kept, [("instructions", Effort::Short), ("latency", Effort::Full), ("memory", Effort::Short)]);
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert!(Results::load(folder.path()).expect("no results yet").sections.is_empty());
        let sections = vec![named("latency", made_up::run(Effort::Full)), made_up::lines()];
        Results { sections: sections.clone() }.save(folder.path()).expect("a writable folder");
        assert_eq!(Results::load(folder.path()).expect("results").sections, sections);
        fs::write(folder.path().join(FILE), "{").expect("a writable folder");
        assert!(Results::load(folder.path()).is_err(), "broken results are not taken for none");
    }

    #[test]
    fn a_section_whose_parts_do_not_fit_is_refused() {
        let refused = |change: fn(&mut Section)| {
            let mut section = made_up::section();
            change(&mut section);
            Record::new(section, made_up::run(Effort::Full)).expect_err("a section that does not fit")
        };
        assert!(refused(|section| section.table.rows[1].cells.truncate(1)).contains("python-redis-lock"));
        assert!(refused(|section| section.bars[0].value = f64::NAN).contains("is NaN"));
        assert!(
            refused(|section| section.plot = Some(Plot::Bars { column: 2, logarithmic: false })).contains("column: 2")
        );
    }
}
