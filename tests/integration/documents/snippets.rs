//! Runs what the documents show besides sessions and programs: shell commands, configuration and SQL.

use std::fs;
use std::process::Command;

use support::python::interpreter;
use support::{Setup, repository};

use super::blocks::{all_blocks, documents, every_block, spans};
use super::programs::LANGUAGES;

/// Languages of which documents only show what contrib/ has, and `make monitoring` runs.
const OF_CONTRIB: [&str; 3] = ["yaml", "ini", "promql"];

/// Languages of the packages, and the source whose lines a document shows. The tests of each package run it.
const OF_PACKAGES: [(&str, &str); 4] = [
    ("js", "clients/node/README.md"),
    ("rust", "clients/rust/src/lib.rs"),
    ("go", "clients/go/examples/tutorial.go"),
    ("java", "clients/java/tests/src/test/java/redislock/tests/TutorialTest.java"),
];

#[test]
fn every_block_is_run_or_plain_text() {
    let of_packages = OF_PACKAGES.map(|(language, _)| language);
    let known = [&["redis", "sh", "conf", "sql", "text"][..], &LANGUAGES, &OF_CONTRIB, &of_packages].concat();
    for block in all_blocks() {
        assert!(known.contains(&block.language.as_str()), "{}: {}", block.place(), block.language);
    }
}

#[test]
fn every_make_command_names_a_target() {
    let mut commands: Vec<String> = every_block("sh").into_iter().flat_map(|block| block.lines).collect();
    for path in documents() {
        let text = fs::read_to_string(path).expect("a document");
        commands.extend(spans(&text).into_iter().filter(|span| span.starts_with("make ")));
    }
    commands.sort();
    commands.dedup();
    assert!(commands.len() > 20, "{commands:?}");
    for command in commands {
        let dry_run = command.replace("make ", "make --dry-run ");
        assert_ne!(dry_run, command, "a shell command is a target of the Makefile");
        let output = Command::new("sh").args(["-c", &dry_run]).current_dir(repository()).output().expect("a shell");
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn shown_parts_of_contrib_are_in_it() {
    let mut texts = Vec::new();
    for folder in ["prometheus", "grafana"] {
        let entries = fs::read_dir(repository().join("contrib").join(folder)).expect("a folder of contrib");
        texts.extend(entries.map(|entry| fs::read_to_string(entry.expect("an entry").path()).expect("a text")));
    }
    for block in OF_CONTRIB.into_iter().flat_map(every_block) {
        let shown = block.lines.join("\n");
        // In the dashboard a query is a string of JSON.
        let forms = [shown.replace('"', "\\\""), shown];
        let is_there = texts.iter().any(|text| forms.iter().any(|form| text.contains(form)));
        assert!(is_there, "{}", block.place());
    }
}

/// Returns the first line of a block that a source does not have behind the lines before it.
fn line_not_in_order(block: &[String], source: &str) -> Option<String> {
    let mut lines = source.lines().map(|line| line.trim_start_matches("//! ").trim());
    block.iter().map(|line| line.trim()).find(|wanted| !lines.any(|line| line == *wanted)).map(str::to_owned)
}

#[test]
fn shown_programs_are_lines_of_tested_ones() {
    for (language, path) in OF_PACKAGES {
        let source = fs::read_to_string(repository().join(path)).expect("a source");
        let blocks = every_block(language);
        assert!(!blocks.is_empty(), "no document shows {language}");
        for block in blocks {
            assert_eq!(line_not_in_order(&block.lines, &source), None, "{}: not in {path}", block.place());
        }
    }
    let block = ["b", "a"].map(str::to_owned);
    assert_eq!(line_not_in_order(&block, "//! a\n    b\n"), Some("a".to_owned()));
}

#[test]
fn every_configuration_is_accepted() {
    for block in every_block("conf") {
        // The module under test is where it was built.
        let lines: Vec<&String> = block.lines.iter().filter(|line| !line.starts_with("loadmodule")).collect();
        let server = lines.iter().fold(Setup::new(), |setup, line| setup.config(line)).start();
        for line in lines {
            let (name, value) = line.split_once(' ').expect("a name and a value");
            let set = server.client().run(&format!("CONFIG GET {name}"));
            assert_eq!(set.get(name), value, "{}: {line}", block.place());
        }
    }
}

#[test]
fn sql_statement_refuses_lower_token() {
    for block in every_block("sql") {
        let program = format!(
            "import sqlite3
db = sqlite3.connect(':memory:')
db.execute('CREATE TABLE account (id INTEGER, balance INTEGER, fence INTEGER)')
db.execute('INSERT INTO account VALUES (1, 0, 0)')
for token, balance in [(5, 10), (5, 20), (7, 30), (6, 99)]:
    print(db.execute('{}', dict(id=1, token=token, balance=balance)).rowcount)
print(db.execute('SELECT balance, fence FROM account').fetchone())",
            block.lines.join(" ")
        );
        let output = Command::new(interpreter()).args(["-c", &program]).output().expect("a Python that runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n1\n1\n0\n(30, 7)\n", "{}", block.place());
    }
}
