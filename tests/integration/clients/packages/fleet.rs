//! The packages, each told what to do and heard.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use support::python::interpreter;
use support::{Client, Server, patient, repository};

use super::rust;
use crate::documents::programs::is_installed;

/// How long an answer may take on a busy machine, with the start of the interpreter.
const LIMIT: Duration = Duration::from_secs(60);

/// A package whose lock is a String with a token.
pub struct Package {
    pub name: &'static str,
    /// As the guide calls it, in front of its version.
    pub title: &'static str,
    language: &'static str,
    /// What it puts in front of the lock's name.
    prefix: &'static str,
    /// How often it tries before it gives up, where that is not a matter of time.
    pub tries: Option<usize>,
    /// What it says when it releases a lock that it has lost.
    pub lost: &'static str,
}

impl Package {
    /// The key of a lock.
    pub fn key_of(&self, lock: &str) -> String {
        format!("{}{lock}", self.prefix)
    }

    /// The name of a lock of its own.
    pub fn lock(&self) -> String {
        format!("door-of-{}", self.name)
    }

    pub fn key(&self) -> String {
        self.key_of(&self.lock())
    }
}

const ALL: [Package; 8] = [
    Package {
        name: "redis-py",
        title: "redis-py",
        language: "python",
        prefix: "",
        tries: None,
        lost: "LockNotOwnedError",
    },
    Package {
        name: "python-redis-lock",
        title: "python-redis-lock",
        language: "python",
        prefix: "lock:",
        tries: None,
        lost: "NotAcquired",
    },
    Package {
        name: "redlock-py",
        title: "redlock-py",
        language: "python",
        prefix: "",
        tries: Some(3),
        lost: "released",
    },
    Package {
        name: "pottery",
        title: "pottery",
        language: "python",
        prefix: "redlock:",
        tries: None,
        lost: "ReleaseUnlockedLock",
    },
    Package {
        name: "redlock",
        title: "redlock",
        language: "javascript",
        prefix: "",
        tries: Some(11),
        lost: "LockError",
    },
    Package {
        name: "redlock-5",
        title: "redlock",
        language: "javascript",
        prefix: "",
        tries: Some(11),
        lost: "ExecutionError",
    },
    Package {
        name: "redis-semaphore",
        title: "redis-semaphore",
        language: "javascript",
        prefix: "mutex:",
        tries: None,
        lost: "released",
    },
    Package { name: "rslock", title: "rslock", language: "rust", prefix: "", tries: Some(3), lost: "released" },
];

/// Those that are installed.
pub fn packages() -> Vec<Package> {
    ALL.into_iter().filter(|package| is_installed(package.language)).collect()
}

/// Clients of all packages, at one server.
pub struct Fleet {
    port: u16,
    /// Each language with its interpreter, which is started when it is needed.
    workers: Vec<(&'static str, Worker)>,
    sender: Sender<String>,
    lines: Receiver<String>,
    /// What was heard and not yet asked for.
    heard: Vec<String>,
}

/// What takes orders for the packages in one language.
enum Worker {
    Interpreter(Child),
    Thread(Sender<String>),
}

impl Fleet {
    pub fn new(server: &Server) -> Self {
        let (sender, lines) = channel();
        Self { port: server.port(), workers: Vec::new(), sender, lines, heard: Vec::new() }
    }

    /// Asks a package for a lock, with so many seconds of lease and of patience.
    #[track_caller]
    pub fn acquire(&mut self, package: &Package, lease_s: u32, patience_s: u32) {
        let order = format!("{} acquire {} {lease_s} {patience_s}", package.name, package.lock());
        self.tell(package.language, &order);
    }

    #[track_caller]
    pub fn release(&mut self, package: &Package) {
        self.tell(package.language, &format!("{} release", package.name));
    }

    /// Tells the packages in a language what to do.
    #[track_caller]
    pub fn tell(&mut self, language: &'static str, order: &str) {
        let known = self.workers.iter().position(|(known, _)| *known == language);
        let at = known.unwrap_or_else(|| {
            self.workers.push((language, Worker::start(language, self.port, self.sender.clone())));
            self.workers.len() - 1
        });
        self.workers[at].1.tell(order);
    }

    /// The next answer of a package, which must come.
    #[track_caller]
    pub fn answer(&mut self, name: &str) -> String {
        let deadline = Instant::now() + patient(LIMIT);
        let begin = format!("{name} ");
        loop {
            if let Some(at) = self.heard.iter().position(|line| line.starts_with(&begin)) {
                return self.heard.remove(at)[begin.len()..].to_owned();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            self.heard.push(line.unwrap_or_else(|_| panic!("{name} does not answer: {:?}", self.heard)));
        }
    }

    /// Whether a package has answered that it holds; the answer says the version.
    #[track_caller]
    pub fn holds(&mut self, name: &str) -> bool {
        let answer = self.answer(name);
        assert!(answer.starts_with("held ") || answer == "gave up", "{name}: {answer}");
        answer != "gave up"
    }
}

impl Worker {
    #[track_caller]
    fn start(language: &str, port: u16, answers: Sender<String>) -> Self {
        let scripts = repository().join("tests/interop");
        let mut command = match language {
            "rust" => return Self::Thread(rust::start(port, answers)),
            "python" => Command::new(interpreter()),
            _ => Command::new("node"),
        };
        match language {
            "python" => command.env("PYTHONDONTWRITEBYTECODE", "1").arg(scripts.join("packages.py")),
            // As a text it finds the packages where it is run.
            _ => command.args(["--input-type=module", "--eval", &text(&scripts.join("packages.mjs"))]),
        };
        command.arg(port.to_string()).current_dir(repository().join("bench/peers"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("an interpreter");
        let output = BufReader::new(child.stdout.take().expect("an output"));
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| answers.send(line)));
        Self::Interpreter(child)
    }

    #[track_caller]
    fn tell(&mut self, order: &str) {
        match self {
            Self::Interpreter(child) => {
                let input = child.stdin.as_mut().expect("an input");
                writeln!(input, "{order}").expect("an interpreter that runs");
            }
            Self::Thread(orders) => orders.send(order.to_owned()).expect("a thread that runs"),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Self::Interpreter(child) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[track_caller]
fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Looks on while packages ask for locks.
pub struct Onlooker(Client);

impl Onlooker {
    #[track_caller]
    pub fn new(server: &Server) -> Self {
        let mut client = server.client();
        client.ok("MONITOR");
        Self(client)
    }

    /// The key of the next attempt to take a lock.
    #[track_caller]
    pub fn next_attempt(&mut self) -> String {
        loop {
            let line = self.0.receive_within(patient(LIMIT)).string();
            if let Some(key) = key_of_attempt(&line) {
                return key.to_owned();
            }
        }
    }

    /// The keys of all attempts until now.
    #[track_caller]
    pub fn attempts(&mut self, control: &mut Client) -> Vec<String> {
        control.run("ECHO all-of-it");
        let mut attempts = Vec::new();
        loop {
            let line = self.0.receive().string();
            if line.contains("all-of-it") {
                return attempts;
            }
            attempts.extend(key_of_attempt(&line).map(str::to_owned));
        }
    }
}

/// Of a line of MONITOR, `1795.1 [0 127.0.0.1:7] "SET" "door" ...`, which also shows what scripts do. That of redlock looks
/// first whether the key is there.
fn key_of_attempt(line: &str) -> Option<&str> {
    let mut words = line.split('"').skip(1).step_by(2);
    let command = words.next()?;
    let tries = ["set", "exists"].iter().any(|name| command.eq_ignore_ascii_case(name));
    words.next().filter(|_| tries)
}
