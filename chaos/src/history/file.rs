//! The file that a history is written to.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::locked;

#[derive(Clone)]
pub struct HistoryFile(Arc<Mutex<BufWriter<File>>>);

impl HistoryFile {
    pub fn create(path: &Path) -> std::io::Result<Self> {
        Ok(Self(Arc::new(Mutex::new(BufWriter::new(File::create(path)?)))))
    }

    pub fn write(&self, line: &Value) {
        writeln!(locked(&self.0), "{line}").expect("a line that can be written");
    }
}
