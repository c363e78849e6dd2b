//! Running the documentation's programs in languages that need an interpreter.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use support::python::interpreter;
use support::{Client, happens_within, repository};

/// Where the packages for Node.js are, which come with the benchmark's.
const NODE_PACKAGES: &str = "bench/peers/node_modules/redis";

/// The languages of programs that need something besides cargo to run.
pub const LANGUAGES: [&str; 7] = ["python", "javascript", "go", "ruby", "php", "perl", "c"];

/// Whether the program of that name exists and ends well.
fn runs(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Whether a language can be run here with its client, or a package is there, which some mode of scripts/setup installs.
pub fn is_installed(language: &str) -> bool {
    let (installed, mode) = match language {
        "javascript" => (repository().join(NODE_PACKAGES).exists(), "bench"),
        "go" => (runs("env", &[&GO_OF_DEBIAN[..], &["list"], &GO_CLIENTS].concat()), "recipes"),
        "ruby" => (runs("ruby", &["-e", "require 'redis'"]), "recipes"),
        "php" => (runs("php", &["-r", PHP_CLIENTS]), "recipes"),
        "symfony/lock" => {
            (runs("php", &["-r", "exit((@include 'Symfony/Component/Lock/autoload.php') ? 0 : 1);"]), "recipes")
        }
        "perl" => (runs("perl", &["-MRedis", "-MRedis::Fast", "-e", "1"]), "recipes"),
        "c" => (runs("cc", &["-E", "-include", "hiredis/hiredis.h", "-x", "c", "/dev/null"]), "recipes"),
        _ => (true, "test"),
    };
    if !installed {
        eprintln!("no client for {language}: it is not run before `scripts/setup {mode}`");
    }
    installed
}

/// The arguments of `env` that run Go with the packages that Debian has, which are no modules.
const GO_OF_DEBIAN: [&str; 3] = ["GO111MODULE=off", "GOPATH=/usr/share/gocode", "go"];

const GO_CLIENTS: [&str; 2] = ["github.com/gomodule/redigo/redis", "gopkg.in/redis.v5"];

/// Ends well if both clients are there.
const PHP_CLIENTS: &str = "exit(extension_loaded('redis') && (@include 'Predis/autoload.php') ? 0 : 1);";

/// Compiles a program in Go, by what is given before it, and runs it.
const RUN_GO: &str = "
into=$(mktemp -d) && trap 'rm -rf $into' EXIT
printf %s \"$4\" >\"$into/main.go\"
env \"$1\" \"$2\" \"$3\" build -o \"$into/program\" \"$into/main.go\" && \"$into/program\"";

/// Compiles a program in C and runs it.
const RUN_C: &str = "
into=$(mktemp -d) && trap 'rm -rf $into' EXIT
printf %s \"$1\" | cc -Wall -Wextra -Werror -x c -o \"$into/program\" - -lhiredis && \"$into/program\"";

/// Starts a program that connects to port 6379, here to another one.
#[track_caller]
pub fn start(language: &str, shown: &str, port: u16) -> Child {
    let here = shown.replace("6379", &port.to_string());
    assert_ne!(here, shown, "it names the port:\n{shown}");
    // A shell that runs the tests in the background may have them ignore SIGINT.
    let mut command = Command::new("env");
    command.arg("--default-signal=INT");
    match language {
        "python" => command.arg(interpreter()).arg("-c"),
        "javascript" => command.args(["node", "--input-type=module", "--eval"]),
        "ruby" | "perl" => command.args([language, "-e"]),
        "php" => command.args(["php", "-r"]),
        "c" => command.args(["sh", "-c", RUN_C, "sh"]),
        "go" => command.args(["sh", "-c", RUN_GO, "sh"]).args(GO_OF_DEBIAN),
        _ => panic!("nothing runs {language}"),
    };
    command.arg(here.trim_start_matches("<?php")).current_dir(repository().join("bench/peers"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("a program that starts")
}

/// What a program that ended well has said, or what went wrong.
pub fn said(program: Child) -> Result<String, String> {
    let output = program.wait_with_output().expect("a program that ends");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(said) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// A program that does not outlive its test.
pub struct Running(Option<Child>);

impl Running {
    #[track_caller]
    pub fn start(language: &str, shown: &str, port: u16) -> Self {
        Self(Some(start(language, shown, port)))
    }

    #[track_caller]
    fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("a program that runs")
    }

    pub fn id(&mut self) -> u32 {
        self.child().id()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child().try_wait().expect("a status").is_some()
    }

    /// What it says, if it ends within the limit.
    #[track_caller]
    pub fn said_within(&mut self, limit: Duration) -> Result<String, String> {
        assert!(happens_within(limit, || self.has_ended()), "the program does not end");
        said(self.0.take().expect("a program"))
    }

    /// What it says from now on, line by line, in place of all at its end.
    #[track_caller]
    pub fn lines(&mut self) -> Lines {
        let output = BufReader::new(self.child().stdout.take().expect("an output that nobody reads"));
        let (sender, lines) = channel();
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Lines(lines)
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

/// The lines that a program says.
pub struct Lines(Receiver<String>);

impl Lines {
    /// The next line; none when there is none within this time.
    #[track_caller]
    pub fn next_within(&self, span: Duration) -> Option<String> {
        match self.0.recv_timeout(span) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("the program has ended"),
        }
    }
}

/// How often the server has run a command.
pub fn calls(client: &mut Client, command: &str) -> usize {
    let calls = client.info("commandstats", &format!("cmdstat_{command}"));
    calls.map_or(0, |calls| calls["calls=".len()..].split(',').next().unwrap_or_default().parse().expect("a number"))
}
