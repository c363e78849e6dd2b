//! Runs the programs of the documents. Each connects to port 6379; the tests replace the port.

use std::env;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use support::python::interpreter;
use support::{Client, happens_within, repository};

/// The packages for Node.js, which come with those of the benchmark.
const NODE_PACKAGES: &str = "bench/peers/node_modules/redis";

pub const LANGUAGES: [&str; 4] = ["python", "ruby", "php", "c"];

/// Compiles a program in C and runs it.
const RUN_C: &str = r#"
into=$(mktemp -d) && trap 'rm -rf $into' EXIT
printf %s "$1" | cc -Wall -Wextra -Werror -x c -o "$into/program" - -lhiredis && "$into/program""#;

/// Returns whether a language can be run here with its client. A mode of scripts/setup installs it.
pub fn is_installed(language: &str) -> bool {
    let (installed, mode) = match language {
        "javascript" => (repository().join(NODE_PACKAGES).exists(), "bench"),
        "ruby" => (succeeds("ruby", &["-e", "require 'redis'"]), "recipes"),
        "php" => (succeeds("php", &["-r", "exit(extension_loaded('redis') ? 0 : 1);"]), "recipes"),
        "c" => (succeeds("cc", &["-E", "-include", "hiredis/hiredis.h", "-x", "c", "/dev/null"]), "recipes"),
        _ => (true, "test"),
    };
    let missing = format!("no client for {language}: it is not run before `scripts/setup {mode}`");
    if !installed {
        assert!(env::var_os("CI").is_none(), "{missing}");
        eprintln!("{missing}");
    }
    installed
}

fn succeeds(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Starts a program against the server with this port.
#[track_caller]
fn start(language: &str, shown: &str, port: u16) -> Child {
    let here = shown.replace("6379", &port.to_string());
    assert_ne!(here, shown, "it names the port:\n{shown}");
    // A shell that runs the tests in the background may ignore SIGINT for them.
    let mut command = Command::new("env");
    command.arg("--default-signal=INT");
    match language {
        "python" => command.arg(interpreter()).arg("-c"),
        "javascript" => command.args(["node", "--input-type=module", "--eval"]),
        "ruby" => command.args(["ruby", "-e"]),
        "php" => command.args(["php", "-r"]),
        "c" => command.args(["sh", "-c", RUN_C, "sh"]),
        _ => panic!("nothing runs {language}"),
    };
    command.arg(here.trim_start_matches("<?php"));
    command.current_dir(repository().join("bench/peers")).env("PYTHONPATH", repository().join("clients/python/src"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("a program that starts")
}

/// A program. Dropping it ends it.
pub struct Running(Option<Child>);

impl Running {
    #[track_caller]
    pub fn start(language: &str, shown: &str, port: u16) -> Self {
        Self::of(start(language, shown, port))
    }

    pub fn of(program: Child) -> Self {
        Self(Some(program))
    }

    pub fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("a program that runs")
    }

    pub fn has_ended(&mut self) -> bool {
        self.child().try_wait().expect("a status").is_some()
    }

    /// Returns what the program prints, or its errors if it fails. It ends within the limit.
    #[track_caller]
    pub fn output_within(&mut self, limit: Duration) -> Result<String, String> {
        assert!(happens_within(limit, || self.has_ended()), "the program does not end");
        let output = self.0.take().expect("a program").wait_with_output().expect("a program that ends");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns how often the server has run a command.
pub fn calls(client: &mut Client, command: &str) -> usize {
    let calls = client.info("commandstats", &format!("cmdstat_{command}"));
    calls.map_or(0, |calls| calls["calls=".len()..].split(',').next().unwrap_or_default().parse().expect("a number"))
}
