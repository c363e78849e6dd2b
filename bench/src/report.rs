//! What the sections found, as tables on the terminal and in a folder.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{fs, thread};

use comfy_table::{CellAlignment, presets};
use jiff::Timestamp;
use support::Server;

const PAGE: &str = "\
# Benchmarks

Results of `make bench`, which writes this page to `target/bench`. [performance.md](../performance.md) says what the sections are about,
and which limits are for their numbers.
";

/// How much is measured: enough to rely on the numbers, or just enough to see that every section works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    Full,
    Short,
}

impl Effort {
    pub fn choose<T>(self, full: T, short: T) -> T {
        match self {
            Self::Full => full,
            Self::Short => short,
        }
    }
}

/// The result of one measurement.
#[derive(Debug)]
pub struct Section {
    pub title: &'static str,
    /// The method, for readers of the table.
    pub method: String,
    /// The heading of the labels, then those of the numbers with their units.
    pub headings: Vec<String>,
    pub rows: Vec<Row>,
    pub bars: Vec<Bar>,
}

#[derive(Debug)]
pub struct Row {
    pub label: String,
    /// None where a number makes no sense.
    pub cells: Vec<Option<f64>>,
}

impl Row {
    pub fn new(label: impl Into<String>, cells: impl IntoIterator<Item = impl Into<Option<f64>>>) -> Self {
        Self { label: label.into(), cells: cells.into_iter().map(Into::into).collect() }
    }
}

/// Makes headings of words.
pub fn headings(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// A number with a limit.
#[derive(Debug)]
pub struct Bar {
    what: String,
    value: f64,
    limit: Limit,
}

#[derive(Debug)]
enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

impl Bar {
    pub fn at_most(what: impl Into<String>, value: f64, limit: f64) -> Self {
        Self { what: what.into(), value, limit: Limit::AtMost(limit) }
    }

    pub fn at_least(what: impl Into<String>, value: f64, limit: f64) -> Self {
        Self { what: what.into(), value, limit: Limit::AtLeast(limit) }
    }

    fn is_met(&self) -> bool {
        match self.limit {
            Limit::AtMost(limit) => self.value <= limit,
            Limit::AtLeast(limit) => self.value >= limit,
        }
    }

    fn words(&self) -> [String; 4] {
        let limit = match self.limit {
            Limit::AtMost(limit) => format!("≤ {limit}"),
            Limit::AtLeast(limit) => format!("≥ {limit}"),
        };
        let verdict = if self.is_met() { "met" } else { "missed" };
        [self.what.clone(), format!("{:.4}", self.value), limit, verdict.to_owned()]
    }
}

/// The report of one run.
pub struct Report {
    effort: Effort,
    folder: PathBuf,
    run: String,
    bars: usize,
    /// The bars that were missed.
    pub missed: Vec<String>,
}

impl Report {
    pub fn new(effort: Effort, folder: PathBuf) -> Self {
        Self { effort, folder, run: facts(), bars: 0, missed: Vec::new() }
    }

    /// Shows a section, and writes it to a file of that name.
    pub fn add(&mut self, name: &str, section: &Section) {
        let style = presets::UTF8_FULL_CONDENSED;
        println!("\n{}\n{}", section.title, numbers(section, style));
        if !section.bars.is_empty() {
            let bars = section.bars.iter().map(|bar| bar.words().to_vec()).collect();
            println!("{}", table(&headings(&["limit of", "value", "limit", "verdict"]), bars, style));
        }
        let missed: Vec<String> = section.bars.iter().filter(|bar| !bar.is_met()).map(|bar| bar.what.clone()).collect();
        let (met, all) = (section.bars.len() - missed.len(), section.bars.len());
        let Section { title, method, .. } = section;
        let table = numbers(section, presets::ASCII_MARKDOWN);
        let limits = if all == 0 { String::new() } else { format!(" {met} of {all} limits are met.") };
        let markdown = format!("## {title}\n\n{method} Measured {}.{limits}\n\n{table}\n", self.run);
        fs::create_dir_all(&self.folder).expect("a folder for the tables");
        fs::write(self.folder.join(format!("{name}.md")), markdown).expect("a file for the tables");
        self.bars += all;
        self.missed.extend(missed);
    }

    /// Writes a page with those of the sections that were measured, now or before.
    pub fn write_page<'a>(&self, sections: impl Iterator<Item = &'a str>) {
        let parts = sections.filter_map(|name| fs::read_to_string(self.folder.join(format!("{name}.md"))).ok());
        let parts: Vec<String> = [PAGE.to_owned()].into_iter().chain(parts).collect();
        fs::write(self.folder.join("README.md"), parts.join("\n")).expect("a file for the page");
    }

    pub fn summary(&self) -> String {
        let met = self.bars - self.missed.len();
        let mut text = format!("\n{met} of {} limits met, {}", self.bars, self.run);
        for what in &self.missed {
            let _ = write!(text, "\nMissed: {what}");
        }
        if self.effort == Effort::Short {
            text += "\nThis was the short form: it shows that every section works, and its numbers mean little.";
        }
        text
    }
}

fn numbers(section: &Section, style: &str) -> String {
    let text = |cell: &Option<f64>| cell.map_or_else(|| "–".to_owned(), figure);
    let row = |row: &Row| [row.label.clone()].into_iter().chain(row.cells.iter().map(text)).collect();
    table(&section.headings, section.rows.iter().map(row).collect(), style)
}

fn table(headings: &[String], rows: Vec<Vec<String>>, style: &str) -> String {
    let mut table = comfy_table::Table::new();
    table.load_preset(style).set_header(headings).add_rows(rows);
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table.to_string()
}

/// A number with three digits, and more where it is longer than that.
fn figure(value: f64) -> String {
    let digits = if value == 0.0 || !value.is_finite() { 0.0 } else { 2.0 - value.abs().log10().floor() };
    let decimals = if value.fract() == 0.0 { 0 } else { digits.clamp(0.0, 6.0) as usize };
    format!("{value:.decimals$}")
}

/// The facts that the numbers depend on: the date, the server, the module and the machine.
fn facts() -> String {
    let server = Server::start();
    let mut client = server.client();
    let mut info = |section: &str, field: &str| client.info(section, field);
    let version = match info("server", "valkey_version") {
        Some(version) => format!("Valkey {version}"),
        None => format!("Redis {}", info("server", "redis_version").unwrap_or_default()),
    };
    let modules = client.run("MODULE LIST");
    let number =
        modules.items().iter().find(|module| module.get("name") == "lock").map_or(0, |lock| lock.get("ver").int());
    let module = format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100);
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1)).unwrap_or("a CPU");
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let date = Timestamp::now().strftime("%Y-%m-%d");
    format!("{date} with redis-lock {module} in {version}, on {cores} cores of {cpu}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        for (value, text) in
            [(0.0, "0"), (1.2345, "1.23"), (0.012_345, "0.0123"), (123.456, "123"), (12_345.6, "12346"), (7.0, "7")]
        {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn bars_are_met_up_to_their_limit() {
        assert!(Bar::at_most("a", 1.35, 1.35).is_met() && !Bar::at_most("a", 1.36, 1.35).is_met());
        assert!(Bar::at_least("a", 0.6, 0.6).is_met() && !Bar::at_least("a", 0.59, 0.6).is_met());
    }

    #[test]
    fn missed_bars_are_in_the_summary_and_tables_in_the_folder() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (effort, out) = (Effort::Full, folder.path().join("new"));
        let mut report = Report { effort, folder: out.clone(), run: String::new(), bars: 0, missed: Vec::new() };
        let section = Section {
            title: "Title",
            method: "Method.".to_owned(),
            headings: headings(&["what", "ms"]),
            rows: vec![Row::new("lock", [Some(1.5)]), Row::new("other", [None])],
            bars: vec![Bar::at_most("met", 1.0, 2.0), Bar::at_least("not met", 1.0, 2.0)],
        };
        report.add("name", &section);
        assert!(report.summary().contains("1 of 2 limits met") && report.missed == ["not met"]);
        let page = fs::read_to_string(out.join("name.md")).expect("a page");
        assert!(page.contains("| lock  | 1.50 |") && page.contains("| other |    – |"), "{page}");
        report.write_page(["none", "name"].into_iter());
        let all = fs::read_to_string(out.join("README.md")).expect("a page");
        assert!(all.starts_with("# Benchmarks") && all.ends_with(&page), "{all}");
    }
}
