//! Every function that a server can call catches its panics, and panics in a test.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use support::repository;

use super::sweep::sweeps;

/// Functions in which nothing can panic, with the whole of what they do.
const HARMLESS: [(&str, &str); 5] = [
    ("on_signal", "a constant"),
    ("get", "the value of an atomic number"),
    ("set_switch", "calls what sets a number"),
    ("on_failpoint", "the failpoints themselves, in no other build"),
    ("RedisModule_On", "load and unload, which catch panics"),
];

/// The entries that `at_load` tests.
const LOADING: [&str; 4] = ["load", "loaded", "unload", "end"];

/// What runs only behind another panic.
const BEHIND_A_PANIC: [&str; 2] = ["no load", "unknown module"];

/// The texts of the layer's files.
fn sources() -> Vec<String> {
    texts(&repository().join("src/server"))
}

fn texts(folder: &Path) -> Vec<String> {
    let paths = fs::read_dir(folder).expect("a folder of sources").map(|entry| entry.expect("an entry").path());
    let read = |path: &Path| vec![fs::read_to_string(path).expect("a source")];
    paths.flat_map(|path| if path.is_dir() { texts(&path) } else { read(&path) }).collect()
}

/// The functions of C's kind, each with its name and its text.
fn functions(source: &str) -> Vec<(String, String)> {
    let behind = source.split("unsafe extern \"C\" fn ").skip(1);
    let of = |text: &str| {
        let name = text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let body = text.split("\n}\n").next().unwrap_or_default();
        (name, body.to_owned())
    };
    // A type has no name here.
    behind.map(of).filter(|(name, _): &(String, _)| !name.is_empty()).collect()
}

#[test]
fn every_function_that_a_server_calls_catches_panics() {
    let all: Vec<_> = sources().iter().flat_map(|source| functions(source)).collect();
    assert!(all.len() > 15, "{all:?}");
    for (name, body) in &all {
        let is_harmless = HARMLESS.iter().any(|(harmless, _)| name.starts_with(harmless));
        assert_ne!(body.contains("catch_panic("), is_harmless, "{name}");
    }
    for (harmless, why) in HARMLESS {
        assert!(all.iter().any(|(name, _)| name.starts_with(harmless)), "{harmless}: {why}");
    }
}

#[test]
fn every_place_that_catches_panics_is_tested() {
    let sources = sources();
    let calls = sources.iter().flat_map(|source| source.split("catch_panic(").skip(1));
    let named: BTreeSet<&str> = calls.filter_map(|call| call.strip_prefix('"')?.split('"').next()).collect();
    // Commands have their own names.
    let swept = sweeps().map(|sweep| sweep.entry).filter(|entry| !entry.starts_with("lock."));
    let tested: BTreeSet<&str> = swept.chain(LOADING).chain(BEHIND_A_PANIC).collect();
    assert_eq!(named, tested);
}

#[test]
fn every_command_is_tested() {
    let pages = fs::read_dir(repository().join("docs/commands")).expect("the pages");
    let pages =
        pages.map(|page| page.expect("a page").path().file_stem().expect("a name").to_string_lossy().into_owned());
    let commands: BTreeSet<String> = pages.filter(|page| page.starts_with("lock.")).collect();
    assert!(commands.len() > 8, "{commands:?}");
    for command in commands {
        assert!(sweeps().any(|sweep| sweep.entry == command), "{command}");
    }
}
