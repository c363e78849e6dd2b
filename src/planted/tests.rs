//! The list and the sources agree.

use std::fs;
use std::path::{Path, PathBuf};

use super::Bug;

fn sources(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

#[test]
fn each_is_planted_at_one_place() {
    let sources = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let text: String = sources.into_iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let mut planted: Vec<_> =
        text.split("planted!(").skip(1).filter_map(|rest| rest.split([')', ' ']).next()).collect();
    planted.retain(|name| name.starts_with(char::is_uppercase) && *name != "Name");
    planted.sort_unstable();
    let mut listed: Vec<_> = Bug::ALL.iter().map(|bug| bug.name()).collect();
    listed.sort_unstable();
    assert_eq!(planted, listed);
}

#[test]
fn one_is_found_by_its_number_and_its_name() {
    assert!(Bug::ALL.iter().enumerate().all(|(index, bug)| bug.number() == index + 1));
    assert!(Bug::ALL.iter().all(|&bug| Bug::find(bug.name()) == Some(bug)));
    assert_eq!(Bug::find("1"), Some(Bug::WorkInEvent));
    assert_eq!(Bug::find("0"), None);
}
