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
    let packages = entries("clients").into_iter().map(|package| package.join("README.md"));
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
fn reliability_counts_faults_and_mutants() {
    let faults = read("src/simulated/faults.rs").matches("says \"").count();
    let mutants = entries("simulator/mutants").iter().filter(|path| path.extension().is_some()).count();
    let page = read("docs/reliability.md");
    assert!(page.contains(&format!("has {faults} faults")), "there are {faults} faults");
    assert!(page.contains(&format!("has {mutants} mutants")), "there are {mutants} mutants");
}
