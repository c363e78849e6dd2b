//! What one measurement found: a table, the bars it is held to, and what is to be drawn of it.

use serde::Serialize;

/// How much is done: enough for figures to rely on, or just enough to see that every part works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    Full,
    Short,
}

impl Effort {
    /// `full` or `short`, whichever it is.
    pub fn choose<T>(self, full: T, short: T) -> T {
        match self {
            Self::Full => full,
            Self::Short => short,
        }
    }
}

/// One question and its answer.
#[derive(Debug, Serialize)]
pub struct Section {
    /// A word, for the command line and file names.
    pub name: &'static str,
    pub title: &'static str,
    /// What was measured and how, in a sentence or two of Markdown.
    pub method: String,
    pub table: Table,
    pub bars: Vec<Bar>,
    pub plot: Option<Plot>,
}

/// The first column of each row is `label`; the others are numbers in the units their heading names.
#[derive(Debug, Serialize)]
pub struct Table {
    pub headings: Vec<String>,
    pub rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub struct Row {
    pub label: String,
    /// None where a figure makes no sense for this row.
    pub cells: Vec<Option<f64>>,
}

/// A figure that must keep to a limit.
#[derive(Debug, Serialize)]
pub struct Bar {
    pub what: String,
    pub value: f64,
    pub limit: Limit,
    /// What is aimed for beyond the limit.
    pub aim: Option<Limit>,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

impl Limit {
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }
}

/// How a section is drawn.
#[derive(Debug, Serialize)]
pub enum Plot {
    /// A bar for each row, as long as the number in column `column` (0 = the first after the label).
    Bars { column: usize, logarithmic: bool },
    /// A line for each row over the numbers in `at`, one for each column.
    Lines { at: Vec<f64>, x: String, y: String },
}
