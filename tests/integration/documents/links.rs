//! The pages of the documents, and the paths and numbers that they name. `make docs` checks their links.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use support::repository;

use super::blocks::{all_blocks, documents, spans};

fn read(path: impl AsRef<Path>) -> String {
    let path = repository().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn entries(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(repository().join(folder)).expect("a folder");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

#[test]
fn contents_list_every_page() {
    let docs = repository().join("docs");
    let contents = read("docs/SUMMARY.md");
    let targets = contents.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let listed: BTreeSet<PathBuf> = targets.filter_map(|target| docs.join(target).canonicalize().ok()).collect();
    let programs = all_blocks().into_iter().map(|block| repository().join(block.document));
    let packages = entries("clients").into_iter().map(|package| package.join("README.md")).filter(|page| page.exists());
    let pages: BTreeSet<PathBuf> = documents().into_iter().chain(programs).chain(packages).collect();
    let missing: Vec<&PathBuf> =
        pages.iter().filter(|page| !listed.contains(*page) && !page.ends_with("SUMMARY.md")).collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:#?}");
}

#[test]
fn every_path_in_contributing_exists() {
    let spans = spans(&read("CONTRIBUTING.md")).into_iter();
    let paths: BTreeSet<String> = spans.filter(|span| span.contains('/') && !span.contains(['=', ' '])).collect();
    assert!(paths.len() > 20, "{paths:?}");
    let missing: Vec<&String> = paths.iter().filter(|path| !repository().join(path).exists()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn published_pages_link_to_nothing_outside() {
    let pages =
        entries("clients").into_iter().flat_map(|package| ["README.md", "DESIGN.md"].map(|page| package.join(page)));
    let pages: Vec<PathBuf> = pages.filter(|page| page.exists()).collect();
    assert!(pages.len() > 3, "{pages:?}");
    let outside: Vec<&PathBuf> = pages.iter().filter(|page| read(page).contains("](..")).collect();
    assert!(outside.is_empty(), "npm, PyPI and crates.io show a dead link of {outside:?}");
}

#[test]
fn actions_of_workflows_are_pinned() {
    let workflow = ["release", "ci"].map(|name| read(format!(".github/workflows/{name}.yml"))).concat();
    let actions: Vec<&str> =
        workflow.lines().filter_map(|line| line.split_once("uses: ")).map(|(_, action)| action).collect();
    assert!(!actions.is_empty(), "the workflows use actions");
    let pinned = |action: &str| {
        let commit = action.split_once('@').and_then(|(_, rest)| rest.split(' ').next());
        commit.is_some_and(|commit| commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let movable: Vec<&&str> = actions.iter().filter(|action| !pinned(action)).collect();
    assert!(movable.is_empty(), "who moves the tag changes what runs: {movable:?}");
}

#[test]
fn reliability_counts_faults_and_mutants() {
    let faults = read("src/simulated/faults.rs").matches("says \"").count();
    let mutants = entries("simulator/mutants").iter().filter(|path| path.extension().is_some()).count();
    let page = read("docs/reliability.md");
    assert!(page.contains(&format!("has {faults} faults")), "there are {faults} faults");
    assert!(page.contains(&format!("has {mutants} mutants")), "there are {mutants} mutants");
}
