//! A wall clock for one server, which can be set. libfaketime stands between the server and the clock of the machine;
//! its monotonic clock is that of the machine.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use support::{Reply, happens_within, now_ms, repository, server_under_test};

use crate::link::Link;

/// Where `scripts/setup chaos` puts it.
const FOLDER: &str = ".tools/faketime";
/// The time in which a server shows its version. Some never do with this library: their allocator asks for the time
/// before the library is ready.
const PATIENCE_S: &str = "2";
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
        let mut clock = Self { library: library()?, folder, offset_ms: 0 };
        clock.set(0);
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", PATIENCE_S]).args(clock.runner()).arg(server_under_test()).arg("--version");
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success()).then_some(clock)
    }

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

    /// Sets the clock forward, or back, in one step, since the server can read the file at any time.
    pub fn set(&mut self, ms: i64) {
        self.offset_ms += ms;
        let (seconds, rest) = (self.offset_ms.abs() / 1000, self.offset_ms.abs() % 1000);
        let sign = if self.offset_ms < 0 { '-' } else { '+' };
        let new = self.folder.path().join("new");
        fs::write(&new, format!("{sign}{seconds}.{rest:03}\n")).expect("a writable folder");
        fs::rename(new, self.file()).expect("a writable folder");
    }

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
