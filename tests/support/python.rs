//! Running the scripts of tests/interop, with the real client library.

use std::path::PathBuf;
use std::process::Command;

use super::{Server, repository};

const PYTHON: &str = ".tools/venv/bin/python";

/// A Python that has the packages of scripts/requirements.txt.
#[track_caller]
pub fn interpreter() -> PathBuf {
    let python = repository().join(PYTHON);
    assert!(python.exists(), "no {PYTHON}: run `scripts/setup test` first");
    python
}

/// Runs a script against a server, which it is told by its port. It must check something and end well.
#[track_caller]
pub fn run_script(server: &Server, script: &str) {
    let output = Command::new(interpreter())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(repository().join("tests/interop").join(script))
        .arg(server.port().to_string())
        .output()
        .expect("a Python that runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {}\n{said}", output.status);
    assert!(said.contains("check_"), "{script} checked nothing:\n{said}");
}
