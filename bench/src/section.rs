//! What one measurement found: a table, the bars it is held to, and what is to be drawn of it.

use serde::{Deserialize, Serialize};

/// How much is done: enough for figures to rely on, or just enough to see that every part works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug)]
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

/// The first column of each row is `label`, and the first heading is that of the labels; the other columns are numbers
/// in the units their heading names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    pub headings: Vec<String>,
    pub rows: Vec<Row>,
}

impl Table {
    pub fn new<Heading: Into<String>>(headings: impl IntoIterator<Item = Heading>, rows: Vec<Row>) -> Self {
        Self { headings: headings.into_iter().map(Into::into).collect(), rows }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// That of a row of this module begins with `redis-lock` or with a command of it, `LOCK.`, and is highlighted.
    pub label: String,
    /// None where a figure makes no sense for this row.
    pub cells: Vec<Option<f64>>,
}

impl Row {
    /// Whether it is about this module and not about what it is measured beside.
    pub fn is_ours(&self) -> bool {
        ["redis-lock", "LOCK."].iter().any(|ours| self.label.starts_with(ours))
    }
}

/// A figure that must keep to a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    pub what: String,
    pub value: f64,
    pub limit: Limit,
    /// What is aimed for beyond the limit.
    pub aim: Option<Limit>,
}

impl Bar {
    pub fn at_most(what: impl Into<String>, value: f64, limit: f64) -> Self {
        Self { what: what.into(), value, limit: Limit::AtMost(limit), aim: None }
    }

    pub fn at_least(what: impl Into<String>, value: f64, limit: f64) -> Self {
        Self { what: what.into(), value, limit: Limit::AtLeast(limit), aim: None }
    }

    pub fn is_met(&self) -> bool {
        self.limit.holds(self.value)
    }

    /// None where nothing is aimed for.
    pub fn meets_aim(&self) -> Option<bool> {
        self.aim.map(|aim| aim.holds(self.value))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Plot {
    /// A bar for each row, as long as the number in column `column` (0 = the first after the label).
    Bars { column: usize, logarithmic: bool },
    /// A line for each row over the numbers in `at`, one for each column. Either axis is logarithmic where its numbers
    /// span two decades.
    Lines { at: Vec<f64>, x: String, y: String },
}
