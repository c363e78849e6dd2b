//! Tables of text, for the terminal and for Markdown. The first column is words, the others are figures.

use comfy_table::{CellAlignment, presets};

use super::figure::{figure, figure_of, limit};
use crate::section::{Bar, Table};

/// Where a figure makes no sense.
const NONE: &str = "–";

pub struct Grid {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    pub fn of_figures(table: &Table) -> Self {
        let text = |cell: &Option<f64>| cell.map_or_else(|| NONE.to_owned(), figure);
        let rows =
            table.rows.iter().map(|row| [row.label.clone()].into_iter().chain(row.cells.iter().map(text)).collect());
        Self { headings: table.headings.clone(), rows: rows.collect() }
    }

    pub fn of_bars<'b>(bars: impl IntoIterator<Item = &'b Bar>) -> Self {
        let headings = ["bar", "value", "limit", "aim", "verdict"].map(str::to_owned).to_vec();
        let row = |bar: &Bar| {
            let aim = bar.aim.map_or_else(|| NONE.to_owned(), limit);
            vec![bar.what.clone(), figure_of(bar), limit(bar.limit), aim, verdict(bar).to_owned()]
        };
        Self { headings, rows: bars.into_iter().map(row).collect() }
    }

    pub fn to_terminal(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED).set_header(&self.headings).add_rows(&self.rows);
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }

    pub fn to_markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let rule = format!("|---|{}\n", "---:|".repeat(self.headings.len().saturating_sub(1)));
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        line(&self.headings) + &rule + &rows
    }
}

fn verdict(bar: &Bar) -> &'static str {
    match (bar.is_met(), bar.meets_aim()) {
        (false, _) => "✗ missed",
        (true, None) => "✓ met",
        (true, Some(true)) => "✓ met, aim too",
        (true, Some(false)) => "✓ met, aim missed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::made_up;
    use crate::section::Limit;

    #[test]
    fn a_table_is_shown_with_figures_that_are_missing() {
        let markdown = Grid::of_figures(&made_up::section().table).to_markdown();
        assert_eq!(
            markdown,
            "\
| protocol | p50, ms | p99, ms |
|---|---:|---:|
| redis-lock, ACQUIRE \\| RELEASE | 0.0516 | 0.120 |
| python-redis-lock | 51.2 | – |
| polls every 100 ms | 1,230 | 98,800 |
"
        );
    }

    #[test]
    fn a_bar_is_met_or_missed_and_so_is_its_aim() {
        let bar = |value, aim| verdict(&Bar { what: String::new(), value, limit: Limit::AtMost(1.35), aim });
        let aim = Some(Limit::AtMost(1.25));
        assert_eq!(bar(1.35, None), "✓ met");
        assert_eq!(bar(1.36, None), "✗ missed");
        assert_eq!(bar(1.36, aim), "✗ missed");
        assert_eq!(bar(1.30, aim), "✓ met, aim missed");
        assert_eq!(bar(1.25, aim), "✓ met, aim too");
    }

    #[test]
    fn bars_are_shown_beside_their_limits() {
        let terminal = Grid::of_bars(&made_up::section().bars).to_terminal();
        let words: Vec<&str> = terminal.lines().nth(3).expect("a first row").split(['│', '┆']).map(str::trim).collect();
        assert_eq!(words, ["", "p50, in PING round trips", "1.21", "≤ 1.5", "≤ 1.2", "✓ met, aim missed", ""]);
    }
}
