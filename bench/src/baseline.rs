//! The C libraries in `baseline/` that make servers comparable, compiled for the run.

use std::path::{Path, PathBuf};
use std::process::Command;

use support::repository;
use tempfile::TempDir;

/// One compiled library, there as long as this lives.
pub struct Library {
    folder: TempDir,
}

impl Library {
    /// The module that does nothing of its own.
    pub fn peer() -> Self {
        Self::compile("peer.c")
    }

    /// What takes chance and time out of a server.
    pub fn steady() -> Self {
        Self::compile("steady.c")
    }

    fn compile(source: &str) -> Self {
        let library = Self { folder: TempDir::with_prefix("redis-lock-bench-").expect("a temporary folder") };
        let source = repository().join("bench/baseline").join(source);
        let status =
            Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).args([&library.path(), &source]).status();
        let status = status.expect("cc, a C compiler: scripts/setup bench installs it");
        assert!(status.success(), "{} does not compile", source.display());
        library
    }

    pub fn path(&self) -> PathBuf {
        self.folder().join("library.so")
    }

    /// A folder for what belongs to the library.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}
