//! The lints: one list for all packages, with a reason for each.

use std::fs;

use support::repository;

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the lines of a section of a Cargo.toml, without empty lines.
fn section<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let heading = format!("[{name}]");
    let lines = text.lines().skip_while(|line| *line != heading).skip(1).take_while(|line| !line.starts_with('['));
    lines.filter(|line| !line.is_empty()).collect()
}

/// Returns the lints among the lines of a section.
fn lints<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    section(text, name).into_iter().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn every_member_inherits_the_lints() {
    let text = read("Cargo.toml");
    let members = section(&text, "workspace");
    let members: Vec<&str> =
        members.iter().filter_map(|line| line.trim().strip_prefix('"')?.split('"').next()).collect();
    assert!(members.len() > 5, "{members:?}");
    for folder in ["."].into_iter().chain(members) {
        let manifest = read(&format!("{folder}/Cargo.toml"));
        assert_eq!(section(&manifest, "lints"), ["workspace = true"], "{folder}");
    }
}

#[test]
fn fuzz_has_the_lints_of_the_workspace() {
    let (workspace, fuzz) = (read("Cargo.toml"), read("fuzz/Cargo.toml"));
    for tool in ["rust", "clippy"] {
        let expected = lints(&workspace, &format!("workspace.lints.{tool}"));
        assert!(expected.len() > 3, "{expected:?}");
        assert_eq!(lints(&fuzz, &format!("lints.{tool}")), expected);
    }
}

#[test]
fn every_lint_has_a_reason() {
    let text = read("Cargo.toml");
    for tool in ["rust", "clippy"] {
        let lines = section(&text, &format!("workspace.lints.{tool}"));
        for (number, line) in lines.iter().enumerate().filter(|(_, line)| !line.starts_with('#')) {
            let reason = number.checked_sub(1).and_then(|above| lines.get(above));
            assert!(reason.is_some_and(|reason| reason.starts_with("# ")), "{line}");
        }
    }
}
