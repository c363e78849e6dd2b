//! The rules of the layers that the compiler does not hold.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use support::repository;

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of sources").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

fn host_sources() -> Vec<(PathBuf, String)> {
    let paths = sources(&repository().join("src/host"));
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).expect("a source"))).collect()
}

/// The names of API functions behind each occurrence of `mark`.
fn functions(text: &str, mark: &str) -> BTreeSet<String> {
    let name = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    text.split(mark).skip(1).map(name).filter(|name: &String| name.starts_with("RedisModule_")).collect()
}

#[test]
fn loading_checks_for_every_function_that_is_called_without_a_look() {
    let sources = host_sources();
    let (_, api) = sources.iter().find(|(path, _)| path.ends_with("api.rs")).expect("src/host/api.rs");
    let checked = functions(api, "        ");
    let called: BTreeSet<String> = sources.iter().flat_map(|(_, text)| functions(text, "api!(")).collect();
    let looked_for: BTreeSet<String> = sources.iter().flat_map(|(_, text)| functions(text, "has_api!(")).collect();
    assert!(called.len() > 30, "{called:?}");
    let required: BTreeSet<String> = called.difference(&looked_for).cloned().collect();
    assert_eq!(checked, required);
}

#[test]
fn only_the_host_has_unsafe_code() {
    for folder in ["src/core", "src/command"] {
        for path in sources(&repository().join(folder)) {
            let text = fs::read_to_string(&path).expect("a source");
            let code = text.lines().filter(|line| !line.contains("forbid(unsafe_code)"));
            assert!(!code.into_iter().any(|line| line.contains("unsafe ")), "{}", path.display());
        }
    }
}

#[test]
fn no_file_has_outgrown_one_idea() {
    for path in sources(&repository().join("src")) {
        let lines = fs::read_to_string(&path).expect("a source").lines().count();
        assert!(lines <= 400, "{} has {lines} lines", path.display());
    }
}
