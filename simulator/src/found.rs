//! Inputs of the fuzzer that failed once, in `fuzz/found`: they hold now. The program `hunt` runs each with the defect that it has
//! found, where it must fail. So a change of what bytes mean is noticed that makes other histories of them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::seed::failure_of_input;

/// The inputs, by name.
fn inputs() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/found/histories");
    let paths = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    let name_of = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
    paths.map(|path| (name_of(&path).expect("a name"), fs::read(&path).expect("an input"))).collect()
}

#[test]
fn what_the_fuzzer_found_holds_now() {
    for (name, bytes) in inputs() {
        assert_eq!(failure_of_input(&bytes), None, "{name}");
    }
}
