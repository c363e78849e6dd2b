//! The instructions of each run of the module's background work, in which no client waits for a reply.

use std::fs;
use std::path::Path;

use support::{Server, Setup, module_with_names};
use tempfile::TempDir;

use super::{CONFIG, folder, require_valgrind, total, valgrind};

/// The function of the module that the server calls for its background work.
const BACKGROUND: &str = "redis_lock::server::timer::on_timer";

/// A server with a normal clock, of which only the module's background work is counted.
pub struct Watched {
    pub server: Server,
    /// Callgrind's output, a file for each run.
    folder: TempDir,
}

impl Watched {
    pub fn start(config: &str) -> Self {
        require_valgrind();
        let folder = folder();
        let [collect, dump] = ["toggle-collect", "dump-after"].map(|option| format!("--{option}={BACKGROUND}"));
        let valgrind = valgrind(&folder, "callgrind", ["--collect-atstart=no".to_owned(), collect, dump]);
        let runner: Vec<&str> = valgrind.iter().map(String::as_str).collect();
        let setup = Setup::new().module(&module_with_names()).config(CONFIG).config(config);
        Self { server: setup.run_by(&runner).start(), folder }
    }

    /// The instructions of each run until now, in no order.
    pub fn runs(&self) -> Vec<f64> {
        let entries = fs::read_dir(self.folder.path()).expect("a readable folder");
        // The file without a number is that of the whole process.
        let files = entries.map(|entry| entry.expect("a file").path()).filter(|file| is_numbered(file));
        files.map(|file| total(&fs::read_to_string(file).expect("callgrind's output"))).collect()
    }
}

fn is_numbered(path: &Path) -> bool {
    path.extension().and_then(|number| number.to_str()?.parse::<u64>().ok()).is_some()
}
