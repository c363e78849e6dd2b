//! Servers that run under valgrind's memcheck: scripts/memcheck.

use std::path::Path;
use std::{env, fs};

/// What scripts/memcheck counts.
const UNSEEN: &str = "the server did not end when it was asked to, so memcheck has looked for no leaks";

/// The words of `SERVER_RUNNER`.
pub fn runner() -> Vec<String> {
    let runner = env::var("SERVER_RUNNER").unwrap_or_default();
    runner.split_whitespace().map(str::to_owned).collect()
}

/// What memcheck has written about the servers that ran in a folder, which is nothing but errors; or that it could not look for
/// leaks, because the last of them has outlived the request to end and was killed.
pub fn complaint(folder: &Path, outlived: bool) -> Option<String> {
    errors_in(folder).or_else(|| (outlived && !runner().is_empty()).then(|| UNSEEN.to_owned()))
}

fn errors_in(folder: &Path) -> Option<String> {
    let paths = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let is_log = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("memcheck."));
    let texts = paths.filter(|path| is_log(path)).filter_map(|path| fs::read_to_string(path).ok());
    let errors: String = texts.collect();
    (!errors.is_empty()).then(|| format!("memcheck says:\n{errors}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_memcheck_has_written_is_a_complaint() {
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
        write("server.log", "PANIC");
        write("memcheck.1", "");
        assert_eq!(errors_in(folder.path()), None);
        write("memcheck.2", "9 bytes in 1 blocks are definitely lost");
        assert!(errors_in(folder.path()).is_some_and(|text| text.contains("definitely lost")));
    }
}
