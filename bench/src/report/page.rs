//! The page of all results, in Markdown.

use super::grid::Grid;
use super::plot;
use super::results::Record;
use crate::section::Effort;

const INTRODUCTION: &str = "\
<!-- Written by `make bench`; changes by hand are lost. -->

# Benchmarks

What `make bench` measured. [performance.md](../performance.md) says what each part is about and why it is measured as it
is; [results.json](results.json) has every figure in full.
";

/// The whole page.
pub fn page(records: &[Record]) -> String {
    let bars = Grid::of_bars(records.iter().flat_map(|record| &record.bars)).to_markdown();
    let parts: String = records.iter().map(part).collect();
    format!("{INTRODUCTION}{}\n## Bars\n\n{bars}{parts}", warning(records))
}

fn warning(records: &[Record]) -> String {
    let short = records.iter().filter(|record| record.run.effort == Effort::Short);
    let titles: Vec<&str> = short.map(|record| record.title.as_str()).collect();
    if titles.is_empty() {
        return String::new();
    }
    format!("\n**Measured in the short form, whose figures mean little: {}.**\n", titles.join("; "))
}

fn part(record: &Record) -> String {
    let Record { title, method, run, .. } = record;
    let table = Grid::of_figures(&record.table).to_markdown();
    let mut part = format!("\n## {title}\n\n{method}\n\n{table}");
    if record.plot.is_some() {
        part += &format!("\n![{title}]({})\n", plot::file_name(record));
    }
    if !record.bars.is_empty() {
        part += &format!("\n{}", Grid::of_bars(&record.bars).to_markdown());
    }
    part + &format!("\nMeasured {run}.\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::made_up;

    #[test]
    fn the_page_has_all_bars_and_each_section_with_its_plot_and_its_run() {
        let page = page(&[made_up::bars(false), made_up::lines()]);
        assert_eq!(page.matches("| fairness | 0.500 | ≥ 0.999 | – | ✗ missed |").count(), 4);
        let part = page.split("\n## ").nth(2).expect("a first section behind the bars");
        assert!(part.starts_with("Release to grant\n\nTwo clients, made up.\n\n| protocol |"), "{part}");
        assert!(part.contains("\n![Release to grant](latency.svg)\n"), "{part}");
        assert!(part.ends_with(
            "\nMeasured 2001-02-03 04:05 UTC: redis-lock 0.0.1 in Redis 1.2.3 (jemalloc), 3 cores of Some Chip, Linux 0.99.\n"
        ));
    }

    #[test]
    fn figures_of_the_short_form_are_said_to_mean_little() {
        assert!(page(&[made_up::lines()]).contains("short form"));
        assert!(!page(&[made_up::bars(false)]).contains("short form"));
    }
}
