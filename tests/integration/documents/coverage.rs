//! Holds docs/waking.md and docs/security.md to the tests that they name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use support::repository;

/// The pages whose rows name tests.
const PAGES: [&str; 2] = ["docs/waking.md", "docs/security.md"];

/// The files whose tests are all about waking and leaving: none of them may be missing on the page.
const WAKING: [&str; 36] = [
    "beginnings",
    "blocking",
    "channels",
    "contended_leases",
    "doubt",
    "effects",
    "ending",
    "external_writes",
    "failovers",
    "freeing",
    "granting",
    "hanging_up",
    "layout",
    "lease_limit",
    "leaving",
    "lost_slots",
    "many_shares",
    "overwriting",
    "period",
    "refused_writes",
    "replica",
    "reshard",
    "roles",
    "scale",
    "sentinel",
    "share_leases",
    "share_queue",
    "share_sessions",
    "slots",
    "stalled_masters",
    "stretches",
    "subscribers",
    "suspension",
    "whole_replies",
    "without_module",
    "written",
];

/// The files whose tests are all about security.
const SECURITY: [&str; 5] = ["channel_rights", "key_rights", "limits", "tokens", "user_rights"];

#[track_caller]
fn text(page: &str) -> String {
    fs::read_to_string(repository().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// The tests that the page names, as `file::test`.
fn named(page: &str) -> BTreeSet<String> {
    let quoted = page.split('`').skip(1).step_by(2);
    quoted.filter(|text| text.contains("::")).map(str::to_owned).collect()
}

/// The files with tests, by their names: one Rust file and one with scenarios can have the same name.
fn files() -> BTreeMap<String, Vec<PathBuf>> {
    let mut files: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let mut folders =
        ["integration", "alone", "scenarios"].map(|folder| repository().join("tests").join(folder)).to_vec();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).expect("a folder of tests").map(|entry| entry.expect("an entry").path()) {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            if path.is_dir() {
                // The program that plays scenarios, and the facts, which have no names but those of their files.
                folders.extend((!["runner", "facts"].contains(&&*name)).then_some(path));
            } else if !["main", "mod"].contains(&&*name) {
                let others = files.entry(name).or_default();
                let is_other = |other: &PathBuf| other.extension() != path.extension();
                assert!(others.iter().all(is_other), "{} and {others:?} have one name", path.display());
                others.push(path);
            }
        }
    }
    files
}

/// The tests of a file that are run, as `file::test`.
fn tests_of(file: &str) -> BTreeSet<String> {
    let files = files();
    let paths = files.get(file).unwrap_or_else(|| panic!("no file {file} below tests"));
    let source = |path| fs::read_to_string(path).unwrap_or_else(|error| panic!("{file}: {error}"));
    let names = paths.iter().flat_map(|path| names_in(&source(path)));
    names.map(|test| format!("{file}::{test}")).collect()
}

/// The names of the tests in Rust, or of the scenarios.
fn names_in(source: &str) -> Vec<String> {
    let run = source.split("#[test]\n").skip(1).filter(|test| !test.starts_with("#[ignore"));
    let tests = run.filter_map(|test| test.split("fn ").nth(1)?.split('(').next());
    let scenarios = source.lines().filter_map(|line| line.strip_prefix("## "));
    tests.chain(scenarios).map(str::to_owned).collect()
}

#[test]
fn every_test_that_a_page_names_is_run() {
    for page in PAGES {
        let named = named(&text(page));
        assert!(named.len() > 30, "{named:?}");
        let files: BTreeSet<&str> = named.iter().filter_map(|name| name.split("::").next()).collect();
        let run: BTreeSet<String> = files.into_iter().flat_map(tests_of).collect();
        let missing: Vec<&String> = named.difference(&run).collect();
        assert!(missing.is_empty(), "named in {page}, but not run: {missing:?}");
    }
}

#[test]
fn a_page_names_every_test_of_its_files() {
    for (page, files) in PAGES.into_iter().zip([&WAKING[..], &SECURITY]) {
        let named = named(&text(page));
        let run: BTreeSet<String> = files.iter().flat_map(|file| tests_of(file)).collect();
        let missing: Vec<&String> = run.difference(&named).collect();
        assert!(missing.is_empty(), "run, but not named in {page}: {missing:?}");
    }
}

#[test]
fn every_row_of_a_page_names_a_test() {
    for page in PAGES {
        let text = text(page);
        let rows = text.lines().filter(|line| line.starts_with("| ") && !line.ends_with("| tests |"));
        rows.for_each(|line| assert!(line.contains("::"), "{page}: {line}"));
    }
}
