//! CONTRIBUTING.md: the commands and the files that it names exist, and its budgets are those of CI.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use support::repository;

use super::blocks::prose;

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The folders that builds and tests create.
const GENERATED: [&str; 2] = ["target", "proptest-regressions"];

/// Returns what stands between single backticks.
fn spans(text: &str) -> Vec<String> {
    prose(text).split('`').skip(1).step_by(2).map(|span| span.replace('\n', " ")).collect()
}

/// Returns the cells of the rows of all tables.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    rows.map(|row| row.split(" | ").collect()).collect()
}

/// Returns whether a span is the path of a file or a folder.
fn is_path(span: &str) -> bool {
    span.contains('/') && !span.contains(['=', ' '])
}

#[test]
fn every_make_command_names_a_target() {
    let commands: BTreeSet<String> =
        spans(&read("CONTRIBUTING.md")).into_iter().filter(|span| span.starts_with("make ")).collect();
    assert!(commands.len() > 20, "{commands:?}");
    for command in commands {
        let dry_run = command.replacen("make", "make --dry-run", 1);
        let output = Command::new("sh").args(["-c", &dry_run]).current_dir(repository()).output().expect("a shell");
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn every_path_of_the_page_exists() {
    let paths: BTreeSet<String> = spans(&read("CONTRIBUTING.md")).into_iter().filter(|span| is_path(span)).collect();
    assert!(paths.len() > 20, "{paths:?}");
    let missing: Vec<&String> = paths.iter().filter(|path| !repository().join(path).exists()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_folder_of_the_repository_has_a_row() {
    let page = read("CONTRIBUTING.md");
    let first_cells: String = rows(&page).into_iter().map(|cells| format!("{} ", cells[0])).collect();
    let named: BTreeSet<String> =
        spans(&first_cells).iter().filter_map(|path| Some(path.split('/').next()?.to_owned())).collect();
    let entries = fs::read_dir(repository()).expect("the repository").map(|entry| entry.expect("an entry"));
    let folders = entries.filter(|entry| entry.path().is_dir()).map(|entry| entry.file_name());
    let folders = folders.map(|name| name.to_string_lossy().into_owned());
    let folders: BTreeSet<String> =
        folders.filter(|name| !name.starts_with('.') && !GENERATED.contains(&&**name)).collect();
    let missing: Vec<&String> = folders.difference(&named).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_budget_is_that_of_ci() {
    let (page, script) = (read("CONTRIBUTING.md"), read(".ci/run"));
    let budgets: Vec<(&str, &str)> = rows(&page)
        .into_iter()
        .filter_map(|cells| {
            Some((cells[0].trim_matches('`'), cells.last()?.strip_prefix("budget ")?.strip_suffix(" s")?))
        })
        .collect();
    assert!(budgets.len() > 8, "{budgets:?}");
    for (command, budget) in budgets {
        let phase = format!("phase {budget} ");
        let mut phases = script.lines().filter_map(|line| line.trim_start().strip_prefix(&phase));
        let words = |line: &str| command.split(' ').all(|word| line.split(' ').any(|other| other == word));
        assert!(phases.any(words), "{command}: no phase of .ci/run with {budget} s");
    }
}

#[test]
fn the_page_has_at_most_200_lines() {
    assert!(read("CONTRIBUTING.md").lines().count() <= 200);
}
