//! Results that nobody measured, for the tests of the report.

use super::results::Record;
use super::run::Run;
use crate::section::{Bar, Effort, Limit, Plot, Row, Section, Table};

pub fn run(effort: Effort) -> Run {
    Run {
        date: "2001-02-03T04:05:00Z".parse().expect("a date"),
        effort,
        server: "Redis 1.2.3".to_owned(),
        allocator: "jemalloc".to_owned(),
        module: "0.0.1".to_owned(),
        cpu: "Some Chip".to_owned(),
        cores: 3,
        kernel: "Linux 0.99".to_owned(),
    }
}

pub fn section() -> Section {
    let bar = |what: &str, value, limit, aim| Bar { what: what.to_owned(), value, limit, aim };
    Section {
        name: "latency",
        title: "Release to grant",
        method: "Two clients, made up.".to_owned(),
        table: table(
            &["protocol", "p50, ms", "p99, ms"],
            &[
                ("redis-lock, ACQUIRE | RELEASE", &[Some(0.0516), Some(0.12)]),
                ("python-redis-lock", &[Some(51.2), None]),
                ("polls every 100 ms", &[Some(1234.0), Some(98765.4)]),
            ],
        ),
        bars: vec![
            bar("p50, in PING round trips", 1.214, Limit::AtMost(1.5), Some(Limit::AtMost(1.2))),
            bar("fairness", 0.5, Limit::AtLeast(0.999), None),
        ],
        plot: Some(Plot::Bars { column: 0, logarithmic: true }),
    }
}

pub fn bars(logarithmic: bool) -> Record {
    let plot = Some(Plot::Bars { column: 0, logarithmic });
    Record::new(Section { plot, ..section() }, run(Effort::Full)).expect("a section that fits")
}

/// Lines that end close together, one of them with a gap.
pub fn lines() -> Record {
    let plot = Plot::Lines {
        at: vec![2.0, 10.0, 100.0, 1000.0, 10_000.0],
        x: "clients".to_owned(),
        y: "hand-overs per second".to_owned(),
    };
    let rows: &[(&str, &[Option<f64>])] = &[
        ("redis-lock", &[Some(21_000.0), Some(20_500.0), Some(20_000.0), Some(19_000.0), Some(18_500.0)]),
        ("SET NX, polled every 1 ms", &[Some(900.0), Some(850.0), Some(400.0), Some(90.0), Some(12.0)]),
        ("SET NX, polled every 100 ms", &[Some(10.0), Some(12.0), Some(14.0), Some(13.0), Some(11.0)]),
        ("Lua and pub/sub", &[Some(9_000.0), Some(4_000.0), None, Some(60.0), Some(11.5)]),
        ("SET NX and BLPOP", &[Some(12_000.0), Some(11_000.0), Some(9_000.0), Some(8_800.0), None]),
    ];
    let headings = ["protocol", "2", "10", "100", "1,000", "10,000"];
    let section = Section { name: "handovers", plot: Some(plot), table: table(&headings, rows), ..section() };
    Record::new(section, run(Effort::Short)).expect("a section that fits")
}

fn table(headings: &[&str], rows: &[(&str, &[Option<f64>])]) -> Table {
    let row = |&(label, cells): &(&str, &[Option<f64>])| Row { label: label.to_owned(), cells: cells.to_vec() };
    Table { headings: headings.iter().map(|&text| text.to_owned()).collect(), rows: rows.iter().map(row).collect() }
}
