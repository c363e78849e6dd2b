//! Holds docs/reliability.md to what there is: the known defects of a hunt.

use std::fs;

use support::repository;

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
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
