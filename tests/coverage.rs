//! Holds docs/waking.md to the tests that it names.

use std::collections::BTreeSet;
use std::fs;

use support::repository;

/// The files whose tests are all about waking and leaving: none of them may be missing on the page.
const COMPLETE: [&str; 17] = [
    "blocking",
    "cluster",
    "contended_leases",
    "doubt",
    "hanging_up",
    "io_threads",
    "leaving",
    "lost_slots",
    "overwriting",
    "replication",
    "roles",
    "scale",
    "sentinel",
    "standstill",
    "stretches",
    "waking",
    "write_fences",
];

fn page() -> String {
    fs::read_to_string(repository().join("docs/waking.md")).expect("docs/waking.md")
}

/// The tests that the page names, as `file::test`.
fn named(page: &str) -> BTreeSet<String> {
    let quoted = page.split('`').skip(1).step_by(2);
    quoted.filter(|text| text.contains("::")).map(str::to_owned).collect()
}

/// The tests of a file that are run, as `file::test`.
fn tests_of(file: &str) -> BTreeSet<String> {
    let path = repository().join("tests").join(format!("{file}.rs"));
    let source = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let attributed = source.split("#[test]\n").skip(1);
    let run = attributed.filter(|test| !test.starts_with("#[ignore"));
    let name = |test: &str| test.split("fn ").nth(1)?.split('(').next().map(str::to_owned);
    run.filter_map(name).map(|test| format!("{file}::{test}")).collect()
}

#[test]
fn every_test_that_the_page_names_is_run() {
    let named = named(&page());
    assert!(named.len() > 100, "{named:?}");
    let files: BTreeSet<&str> = named.iter().filter_map(|name| name.split("::").next()).collect();
    let run: BTreeSet<String> = files.into_iter().flat_map(tests_of).collect();
    let missing: Vec<&String> = named.difference(&run).collect();
    assert!(missing.is_empty(), "named in docs/waking.md, but not run: {missing:?}");
}

#[test]
fn the_page_names_every_test_of_waking_and_leaving() {
    let named = named(&page());
    let run: BTreeSet<String> = COMPLETE.into_iter().flat_map(tests_of).collect();
    let missing: Vec<&String> = run.difference(&named).collect();
    assert!(missing.is_empty(), "run, but not named in docs/waking.md: {missing:?}");
}

#[test]
fn every_row_of_the_page_names_a_test() {
    for line in page().lines().filter(|line| line.starts_with("| ") && !line.starts_with("| what happens")) {
        assert!(line.contains("::"), "{line}");
    }
}
