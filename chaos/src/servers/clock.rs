//! A wall clock for one server, which can be set. libfaketime stands between the server and the clock of the machine;
//! its monotonic clock is that of the machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use support::{Reply, happens_within, now_ms, repository, server_under_test};

use crate::link::Link;

/// Where `scripts/setup chaos` puts it.
const FOLDER: &str = ".tools/faketime";
/// The time in which a server shows its version. Some never do with this library: their allocator asks for the time
/// before the library is ready.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time in which the server sees a new time, and how far apart two clocks can look.
const NOTICED: Duration = Duration::from_secs(5);
const NEAR_MS: i64 = 500;

#[derive(Clone)]
pub struct Clock {
    library: PathBuf,
    folder: Arc<tempfile::TempDir>,
    offset_ms: i64,
}

impl Clock {
    /// A clock that shows the time of the machine; `None` if the library is not installed, or the server does not run
    /// with it.
    pub fn new() -> Option<Self> {
        let folder = Arc::new(tempfile::TempDir::with_prefix("redis-lock-clock-").ok()?);
        let clock = Self { library: library()?, folder, offset_ms: 0 };
        clock.show();
        clock.suits(&server_under_test()).then_some(clock)
    }

    /// The words before the command line of the server.
    pub fn runner(&self) -> [String; 5] {
        let (library, file) = (self.library.display(), self.file());
        [
            "env".to_owned(),
            format!("LD_PRELOAD={library}"),
            format!("FAKETIME_TIMESTAMP_FILE={}", file.display()),
            "FAKETIME_NO_CACHE=1".to_owned(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
        ]
    }

    /// Sets the clock forward, or back.
    pub fn set(&mut self, ms: i64) {
        self.offset_ms += ms;
        self.show();
    }

    /// Waits until the server sees the time; false if it does not, or the connection is closed.
    pub fn is_seen_by(&self, link: &mut Link) -> bool {
        let is_near = |now: i64| (now - now_ms() - self.offset_ms).abs() < NEAR_MS;
        let mut seen = Some(false);
        happens_within(NOTICED, || {
            seen = time_of(link).map(is_near);
            seen != Some(false)
        });
        seen == Some(true)
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("offset")
    }

    /// Writes the offset in one step, since the server can read it at any time.
    fn show(&self) {
        let (seconds, rest) = (self.offset_ms.abs() / 1000, self.offset_ms.abs() % 1000);
        let sign = if self.offset_ms < 0 { '-' } else { '+' };
        let new = self.folder.path().join("new");
        fs::write(&new, format!("{sign}{seconds}.{rest:03}\n")).expect("a writable folder");
        fs::rename(new, self.file()).expect("a writable folder");
    }

    fn suits(&self, server: &Path) -> bool {
        let [command, arguments @ ..] = self.runner();
        let mut command = Command::new(command);
        command.args(arguments).arg(server).arg("--version").stdin(Stdio::null()).stdout(Stdio::null());
        let Ok(mut process) = command.stderr(Stdio::null()).spawn() else { return false };
        let mut status = None;
        happens_within(PATIENCE, || {
            status = process.try_wait().ok().flatten();
            status.is_some()
        });
        // Both fail only if the process has ended.
        let _ = process.kill();
        let _ = process.wait();
        status.is_some_and(|status| status.success())
    }
}

/// The time by the clock of the server, in Unix milliseconds.
pub fn time_of(link: &mut Link) -> Option<i64> {
    let Reply::List(parts) = link.run("TIME") else { return None };
    let number = |at: usize| parts.get(at).and_then(|part| part.string().parse::<i64>().ok());
    Some(number(0)? * 1000 + number(1)? / 1000)
}

fn library() -> Option<PathBuf> {
    let folders = fs::read_dir(repository().join(FOLDER).join("usr/lib")).ok()?;
    let paths = folders.filter_map(Result::ok).map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    paths.into_iter().find(|path| path.is_file())
}
