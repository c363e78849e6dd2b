//! How a server is to be started: which binary, with or without the module, with which configuration.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;

use super::memcheck;
use super::server::{Ended, Server, config_path};

/// A port that was free may be taken by somebody else before the server binds it.
const ATTEMPTS: u32 = 5;

/// A server to be. Each line of configuration is one of redis.conf.
#[derive(Clone)]
pub struct Setup {
    binary: PathBuf,
    module: Option<String>,
    lines: Vec<String>,
    directory: Option<Arc<TempDir>>,
    port: Option<u16>,
    for_tests: bool,
    /// Whether the test causes bugs in the module.
    allows_bugs: bool,
    /// A program and its arguments that runs the server, valgrind for one.
    runner: Vec<String>,
}

/// The root of the project.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("tests/support is two folders deep")
}

impl Setup {
    #[expect(clippy::new_without_default, reason = "a server to be started is nothing that is there by default")]
    pub fn new() -> Self {
        Self {
            binary: server_under_test(),
            module: Some(module_under_test().display().to_string()),
            lines: Vec::new(),
            directory: None,
            port: None,
            for_tests: true,
            allows_bugs: false,
            runner: memcheck::runner(),
        }
    }

    /// Adds lines to the configuration.
    pub fn config(mut self, lines: &str) -> Self {
        self.lines.extend(lines.lines().map(str::to_owned));
        self
    }

    /// Arguments behind the module's path.
    pub fn module_args(mut self, args: &str) -> Self {
        self.module = Some(format!("{} {args}", module_under_test().display()));
        self
    }

    pub fn without_module(mut self) -> Self {
        self.module = None;
        self
    }

    /// Another server binary than the one under test.
    pub fn binary(mut self, binary: PathBuf) -> Self {
        self.binary = binary;
        self
    }

    /// Another build of the module than the one under test.
    pub fn module(mut self, module: &Path) -> Self {
        self.module = Some(module.display().to_string());
        self
    }

    /// The build of the module that panics where a test wants it to.
    #[track_caller]
    pub fn with_failpoints(self) -> Self {
        self.module(&module_with_failpoints())
    }

    /// Allows bugs of the module: caught panics and broken invariants. Without this, each of them fails the test.
    pub fn allow_bugs(mut self) -> Self {
        self.allows_bugs = true;
        self
    }

    /// Another server binary, with no configuration beyond what every version knows.
    pub fn old_binary(mut self, binary: PathBuf) -> Self {
        self.binary = binary;
        self.for_tests = false;
        self
    }

    /// Runs the server by another program: its path and arguments, to which the server's own are added. SERVER_RUNNER runs both.
    pub fn run_by(mut self, runner: &[&str]) -> Self {
        self.runner.extend(runner.iter().map(|&word| word.to_owned()));
        self
    }

    /// In the folder of a server that was stopped, so that its files are loaded.
    pub fn in_directory_of(mut self, server: &Server) -> Self {
        self.directory = Some(server.directory_handle());
        self
    }

    /// On the port of a server that was stopped.
    pub fn on_port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    #[track_caller]
    pub fn start(&self) -> Server {
        self.try_start().unwrap_or_else(|ended| panic!("the server did not start; its log:\n{}", ended.log))
    }

    /// Starts the server.
    ///
    /// # Errors
    ///
    /// The log, if the server ends before it answers.
    pub fn try_start(&self) -> Result<Server, Ended> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            match self.start_once() {
                Err(ended) if ended.port_was_taken() => last = Some(ended),
                settled => return settled,
            }
        }
        last.map_or_else(|| panic!("no attempt was made"), Err)
    }

    fn start_once(&self) -> Result<Server, Ended> {
        let directory = self
            .directory
            .clone()
            .unwrap_or_else(|| Arc::new(TempDir::with_prefix("redis-lock-test-").expect("a temporary folder")));
        let port = self.port.unwrap_or_else(free_port);
        let file = config_path(&directory);
        fs::write(&file, self.text(port, directory.path())).expect("a writable folder");
        Server::launch(self.command(&file), port, directory, self.allows_bugs)
    }

    fn command(&self, config: &Path) -> Command {
        let folder = config.parent().expect("the folder of a server").display().to_string();
        let runner: Vec<String> = self.runner.iter().map(|word| word.replace("{}", &folder)).collect();
        let mut words = runner.iter().map(OsStr::new).chain([self.binary.as_os_str(), config.as_os_str()]);
        let mut command = Command::new(words.next().expect("a binary"));
        command.args(words);
        command
    }

    fn text(&self, port: u16, directory: &Path) -> String {
        let mut lines = vec![
            "bind 127.0.0.1".to_owned(),
            format!("port {port}"),
            format!("dir {}", directory.display()),
            "save \"\"".to_owned(),
            "dbfilename dump.rdb".to_owned(),
        ];
        if self.for_tests {
            lines.push("enable-debug-command yes".to_owned());
            lines.push("enable-module-command yes".to_owned());
        }
        if let Some(module) = &self.module {
            lines.push(format!("loadmodule {module}"));
        }
        if self.for_tests {
            lines.extend(lines_for_every_server());
        }
        lines.extend(self.lines.iter().cloned());
        lines.push(String::new());
        lines.join("\n")
    }
}

/// What SERVER_CONFIG adds to the configuration of each server; the test's own lines come later, and so prevail.
fn lines_for_every_server() -> Vec<String> {
    let config = env::var("SERVER_CONFIG").unwrap_or_default();
    config.split([';', '\n']).map(|line| line.trim().to_owned()).collect()
}

/// A port on which nobody listens now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("the port's number").port()
}

/// The binary that is tested; it is a sentinel, too.
pub fn server_under_test() -> PathBuf {
    if let Some(path) = env::var_os("SERVER").filter(|path| !path.is_empty()) {
        return PathBuf::from(path);
    }
    let folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
    ["redis-server", "valkey-server"]
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|path| path.is_file())
        .expect("no redis-server or valkey-server in PATH: set SERVER=/path/to/server")
}

/// Another module of tests/modules, which is built into the same folder.
#[track_caller]
pub fn module_beside(name: &str) -> PathBuf {
    let path = module_under_test().with_file_name(format!("lib{name}.so"));
    assert!(path.is_file(), "no {}: run `cargo build --release --package {name}` first", path.display());
    path
}

#[track_caller]
fn module_with_failpoints() -> PathBuf {
    module_of_profile("checked", "--features failpoints")
}

/// The module with the names of its functions, which is optimised a little less.
#[track_caller]
pub fn module_with_names() -> PathBuf {
    module_of_profile("tool", "")
}

/// The module as another profile builds it, which has a folder beside that of the module under test.
#[track_caller]
fn module_of_profile(profile: &str, options: &str) -> PathBuf {
    let module = module_under_test();
    let target = module.ancestors().nth(2).expect("a folder for each profile");
    let path = target.join(profile).join(module.file_name().expect("a file"));
    assert!(path.is_file(), "no {}: run `cargo build --profile {profile} {options}` first", path.display());
    path
}

pub fn module_under_test() -> PathBuf {
    let path = env::var_os("MODULE")
        .filter(|path| !path.is_empty())
        .map_or_else(|| repository().join("target/release/libredis_lock.so"), PathBuf::from);
    assert!(path.is_file(), "no module at {}: run `make build` first", path.display());
    // The server resolves the path in its own folder.
    fs::canonicalize(path).expect("the module's absolute path")
}
