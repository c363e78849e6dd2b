//! The file that a history is written to.

use std::fs::{File, create_dir_all};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::locked;

/// By default there is none.
#[derive(Clone, Default)]
pub struct HistoryFile(Option<Arc<Mutex<BufWriter<File>>>>);

impl HistoryFile {
    pub fn create(path: &Path) -> io::Result<Self> {
        path.parent().map_or(Ok(()), create_dir_all)?;
        Ok(Self(Some(Arc::new(Mutex::new(BufWriter::new(File::create(path)?))))))
    }

    pub fn write(&self, line: impl FnOnce() -> Value) {
        if let Some(file) = &self.0 {
            writeln!(locked(file), "{}", line()).expect("a line that can be written");
        }
    }
}
