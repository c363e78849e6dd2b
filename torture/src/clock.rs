//! A wall clock of the server's own, which can be set. libfaketime stands between the server and the machine's clock; its
//! monotonic clock is the machine's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use support::{Reply, repository, server_under_test};

use crate::link::Link;

/// Where `scripts/setup torture` puts it.
const FOLDER: &str = ".tools/faketime";
/// How long a server may take to say which it is. Some never do with this library: their allocator asks for the time before
/// the library is ready.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the server may take to see a new time, and how far apart two clocks may look.
const NOTICED: Duration = Duration::from_secs(5);
const NEAR_MS: i64 = 500;

#[derive(Clone)]
pub struct Clock {
    library: PathBuf,
    folder: Arc<tempfile::TempDir>,
    offset_ms: i64,
}

impl Clock {
    /// One that shows the machine's time; None where the library is not installed, or the server does not run with it.
    pub fn new() -> Option<Self> {
        let folder = Arc::new(tempfile::TempDir::with_prefix("redis-lock-clock-").ok()?);
        let clock = Self { library: library()?, folder, offset_ms: 0 };
        clock.show();
        clock.suits(&server_under_test()).then_some(clock)
    }

    /// What has to stand before the server's command line.
    pub fn runner(&self) -> Vec<String> {
        vec![
            "env".to_owned(),
            format!("LD_PRELOAD={}", self.library.display()),
            format!("FAKETIME_TIMESTAMP_FILE={}", self.file().display()),
            "FAKETIME_NO_CACHE=1".to_owned(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
        ]
    }

    /// Sets the clock forward, or back.
    pub fn set(&mut self, ms: i64) {
        self.offset_ms += ms;
        self.show();
    }

    /// Waits until the server has it; false when it does not, or the connection is closed before.
    pub fn is_seen_by(&self, link: &mut Link) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < NOTICED {
            let Some(now) = time_of(link) else { return false };
            if (now - support::now_ms() - self.offset_ms).abs() < NEAR_MS {
                return true;
            }
            sleep(Duration::from_millis(1));
        }
        false
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("offset")
    }

    /// Writes the offset as one step, since it may be read at any time.
    fn show(&self) {
        let (seconds, rest) = (self.offset_ms.abs() / 1000, self.offset_ms.abs() % 1000);
        let sign = if self.offset_ms < 0 { '-' } else { '+' };
        let new = self.folder.path().join("new");
        fs::write(&new, format!("{sign}{seconds}.{rest:03}\n")).expect("a writable folder");
        fs::rename(new, self.file()).expect("a writable folder");
    }

    fn suits(&self, server: &Path) -> bool {
        let runner = self.runner();
        let mut command = Command::new(&runner[0]);
        command.args(&runner[1..]).arg(server).arg("--version");
        let Ok(mut process) = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
            return false;
        };
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Ok(Some(status)) = process.try_wait() {
                return status.success();
            }
            sleep(Duration::from_millis(5));
        }
        // Both fail only when the process is gone already.
        let _ = process.kill();
        let _ = process.wait();
        false
    }
}

/// What the server takes for the time, in milliseconds since 1970.
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
