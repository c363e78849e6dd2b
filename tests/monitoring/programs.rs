//! The programs of Debian's packages: those of the machine, or the private copies that `scripts/setup monitoring` makes.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use support::repository;

/// Where the private copies are.
const PRIVATE: &str = ".tools/monitoring/usr/bin";

#[track_caller]
fn path_of(program: &str) -> PathBuf {
    let folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
    folders
        .into_iter()
        .chain([repository().join(PRIVATE)])
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("no {program}: run `scripts/setup monitoring` first"))
}

#[track_caller]
pub fn command(program: &str) -> Command {
    Command::new(path_of(program))
}

/// A program that serves until this is dropped; what it says is shown if the test fails.
pub struct Daemon {
    process: Child,
    log: PathBuf,
}

impl Daemon {
    #[track_caller]
    pub fn start(mut command: Command, log: &Path) -> Self {
        let said = File::create(log).expect("a log file");
        let errors = said.try_clone().expect("a second handle of the log");
        let process = command.stdin(Stdio::null()).stdout(said).stderr(errors).spawn();
        Self { process: process.expect("a program that starts"), log: log.to_owned() }
    }

    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Both fail only when the process is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if thread::panicking() {
            eprintln!("--- {}:\n{}", self.log.display(), self.said());
        }
    }
}
