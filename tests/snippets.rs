//! Runs what the documentation shows besides sessions: shell commands, configuration, Python and SQL. No block is shown
//! in a language that nothing runs.

#[path = "documents/blocks.rs"]
mod blocks;

use std::fs;
use std::process::Command;

use blocks::{Block, all_blocks, every_block};
use support::{Server, Setup, repository};

/// Runs a Python program; its output, or what went wrong.
fn python(program: &str) -> Result<String, String> {
    let python = repository().join(".tools/venv/bin/python");
    assert!(python.exists(), "no {}: run `scripts/setup test` first", python.display());
    let output = Command::new(python).args(["-c", program]).output().expect("a Python that runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(said) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn place(block: &Block) -> String {
    format!("{}, line {}", block.document, block.first)
}

#[test]
fn every_block_is_in_a_language_that_is_run_or_is_plain_text() {
    // Sessions, which are marked redis, are played in tests/documents.rs.
    let known = ["redis", "sh", "conf", "python", "sql", "text"];
    for block in all_blocks() {
        assert!(known.contains(&block.language.as_str()), "{}: {}", place(&block), block.language);
    }
}

#[test]
fn every_shell_command_is_a_target_of_the_makefile() {
    let blocks = every_block("sh");
    assert!(!blocks.is_empty());
    for block in blocks {
        for line in &block.lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(words.first(), Some(&"make"), "{}: {line}", place(&block));
            let dry_run = Command::new("make").arg("--dry-run").args(&words[1..]).current_dir(repository()).output();
            assert!(dry_run.expect("make").status.success(), "{}: {line}", place(&block));
        }
    }
}

#[test]
fn every_configuration_is_taken_by_the_server() {
    let blocks = every_block("conf");
    assert!(!blocks.is_empty());
    for block in blocks {
        // The module under test stands where it is built, not where it is installed.
        let lines: Vec<&str> =
            block.lines.iter().map(String::as_str).filter(|line| !line.starts_with("loadmodule")).collect();
        let server = Setup::new().config(&lines.join("\n")).start();
        for line in lines {
            let (name, value) = line.split_once(' ').expect("a name and a value");
            let set = server.client().run(&format!("CONFIG GET {name}"));
            assert_eq!(set.get(name), value, "{}: {line}", place(&block));
        }
    }
}

#[test]
fn the_python_program_takes_and_releases_the_lock() {
    let blocks = every_block("python");
    assert!(!blocks.is_empty());
    for block in blocks {
        let server = Server::start();
        let program = block.lines.join("\n");
        let here = program.replace("port=6379", &format!("port={}", server.port()));
        assert_ne!(here, program, "{}: it names the port", place(&block));
        assert_eq!(python(&here), Ok("the door is ours\n".to_owned()), "{}", place(&block));
        assert_eq!(server.client().run("EXISTS door"), 0, "{}", place(&block));
    }
}

#[test]
fn the_sql_statement_refuses_a_token_that_is_too_low() {
    let blocks = every_block("sql");
    assert!(!blocks.is_empty());
    for block in blocks {
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
        assert_eq!(python(&program), Ok("1\n1\n1\n0\n(30, 7)\n".to_owned()), "{}", place(&block));
    }
}

#[test]
fn the_example_configuration_starts_a_server() {
    let text = fs::read_to_string(repository().join("redis.conf.example")).expect("a redis.conf.example");
    assert!(text.lines().any(|line| line.starts_with("loadmodule ")), "it loads the module");
    // Port, directory and module are the test's own.
    let ours = ["loadmodule", "port", "dir", "logfile", "daemonize", "pidfile", "bind"];
    let is_ours = |line: &str| ours.contains(&line.split(' ').next().unwrap_or_default());
    let lines: Vec<&str> = text.lines().filter(|line| !is_ours(line)).collect();
    let server = Setup::new().config(&lines.join("\n")).start();
    let mut client = server.client();
    assert_eq!(client.run("CONFIG GET maxmemory-policy").get("maxmemory-policy"), "noeviction");
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 9000"), 1);
}
