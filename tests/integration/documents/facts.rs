//! The facts about servers in tests/scenarios/facts: each says in parentheses which files rely on it.

use std::fs;

use support::repository;

#[test]
fn every_fact_names_files_that_rely_on_it() {
    let folder = fs::read_dir(repository().join("tests/scenarios/facts")).expect("the facts");
    for path in folder.map(|entry| entry.expect("an entry").path()) {
        let name = path.display();
        let text = fs::read_to_string(&path).expect("a scenario");
        let comment: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
        let named = comment.iter().find_map(|line| line.split_once('(')?.1.split_once(')'));
        let (files, _) = named.unwrap_or_else(|| panic!("{name}: no file in parentheses"));
        for file in files.split(", ") {
            let exists = ["src", ""].map(|folder| repository().join(folder).join(file).exists());
            assert!(exists.contains(&true), "{name}: {file}");
        }
    }
}
