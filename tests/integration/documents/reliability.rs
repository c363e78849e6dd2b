//! Holds docs/reliability.md to what there is: the known defects of a hunt, and the tests that show what was found.

use std::fs;
use std::path::Path;

use support::repository;

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The sources below a folder, one after the other.
fn sources(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut all = String::new();
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            all.push_str(&sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "scenario") {
            // The name of a file with facts is the name of its test.
            all.push_str(&format!("## {}\n", path.file_stem().expect("a name").to_string_lossy()));
            all.push_str(&fs::read_to_string(&path).expect("a source"));
        }
    }
    all
}

/// What is said to show each of the findings.
fn shown_by(page: &str) -> Vec<String> {
    let (_, findings) = page.split_once("## What was found").expect("the findings");
    let (findings, _) = findings.split_once("\n## ").expect("what comes after them");
    let rows = findings.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|row| row.split(" | ").last().expect("a column").to_owned()).collect()
}

#[test]
fn page_counts_faults_and_mutants() {
    let faults = read("src/simulated/faults.rs");
    let faults = faults.matches("says \"").count();
    let folder = fs::read_dir(repository().join("simulator/mutants")).expect("the mutants");
    let mutants = folder.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().extension().is_some())).count();
    let page = read("docs/reliability.md");
    assert!(page.contains(&format!("has {faults} faults")), "there are {faults} faults");
    assert!(page.contains(&format!("has {mutants} mutants")), "there are {mutants} mutants");
}

#[test]
fn what_shows_a_finding_is_there() {
    let sources: String = ["src", "tests"].map(|folder| sources(&repository().join(folder))).concat();
    let shown_by = shown_by(&read("docs/reliability.md"));
    assert!(shown_by.len() > 10, "{shown_by:?}");
    let words = shown_by.iter().flat_map(|words| words.split(|char: char| !char.is_alphanumeric() && char != '_'));
    let mut tests = words.filter(|word| word.matches('_').count() > 1).peekable();
    assert!(tests.peek().is_some());
    let is_there =
        |test: &str| [format!("fn {test}("), format!("## {test}\n")].iter().any(|name| sources.contains(name));
    let missing: Vec<&str> = tests.filter(|test| !is_there(test)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
