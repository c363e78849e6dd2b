//! Libraries in C, modules for one, compiled for the one who needs them.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::repository;

/// One compiled library, there as long as this lives.
pub struct Library {
    folder: TempDir,
}

impl Library {
    /// Compiles a source, which is named from the root of the project.
    #[track_caller]
    pub fn compile(source: &str) -> Self {
        let library = Self { folder: TempDir::with_prefix("redis-lock-library-").expect("a temporary folder") };
        let (from, to) = (repository().join(source), library.path());
        let status = Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).args([to, from]).status();
        let status = status.expect("cc, a C compiler: scripts/setup build installs it");
        assert!(status.success(), "{source} does not compile");
        library
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("library.so")
    }
}
