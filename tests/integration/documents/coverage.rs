//! Holds docs/waking.md and docs/security.md to the tests that they name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use support::repository;

/// The pages whose rows name tests.
const PAGES: [&str; 2] = ["docs/waking.md", "docs/security.md"];

/// The files whose tests are all about waking and leaving: none of them may be missing on the page.
const WAKING: [&str; 39] = [
    "after_a_standstill",
    "beginnings",
    "blocking",
    "channels",
    "contended_leases",
    "data_of_others",
    "doubt",
    "effects",
    "ending",
    "foreign_writes",
    "form",
    "freeing",
    "granting",
    "hanging_up",
    "io_threads",
    "leaving",
    "line",
    "longest_lease",
    "lost_slots",
    "other_forms",
    "overwriting",
    "period",
    "reshard",
    "roles",
    "rough_seas",
    "scale",
    "sentinel",
    "share_ends",
    "share_sessions",
    "shared",
    "shared_roles",
    "shared_slots",
    "slots",
    "standstill",
    "stretches",
    "subscribers",
    "whole_replies",
    "write_fences",
    "written",
];

/// The files whose tests are all about security.
const SECURITY: [&str; 8] = [
    "borrowed_rights",
    "changed_rights",
    "crowding",
    "database_rights",
    "forgery",
    "holding_up",
    "key_rights",
    "secrecy",
];

#[track_caller]
fn text(page: &str) -> String {
    fs::read_to_string(repository().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// The tests that the page names, as `file::test`.
fn named(page: &str) -> BTreeSet<String> {
    let quoted = page.split('`').skip(1).step_by(2);
    quoted.filter(|text| text.contains("::")).map(str::to_owned).collect()
}

/// The files with tests, by their names, which are unique although they are in folders.
fn files() -> BTreeMap<String, PathBuf> {
    let mut files = BTreeMap::new();
    let mut folders = ["integration", "alone"].map(|folder| repository().join("tests").join(folder)).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of tests") {
            let path = entry.expect("an entry").path();
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if !["main", "mod"].contains(&&*name) {
                let other = files.insert(name, path.clone());
                assert!(other.is_none(), "{} and {other:?} have one name", path.display());
            }
        }
    }
    files
}

/// The tests of a file that are run, as `file::test`.
fn tests_of(file: &str) -> BTreeSet<String> {
    let files = files();
    let path = files.get(file).unwrap_or_else(|| panic!("no file {file} below tests"));
    let source = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let attributed = source.split("#[test]\n").skip(1);
    let run = attributed.filter(|test| !test.starts_with("#[ignore"));
    let name = |test: &str| test.split("fn ").nth(1)?.split('(').next().map(str::to_owned);
    run.filter_map(name).map(|test| format!("{file}::{test}")).collect()
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
