//! Runs the inputs in `fuzz/found`. Each failed once, when the fuzzer found it, and must pass now.
//!
//! The program `hunt` runs each input with the defect that the input has found. There it must fail. If a change gives
//! the bytes another meaning, the inputs become other histories, and `hunt` reports that.

use std::fs;
use std::path::{Path, PathBuf};

use crate::seed::failure_of_input;

/// Returns the inputs with their names.
fn inputs() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/found/histories");
    let paths = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    let name_of = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
    paths.map(|path| (name_of(&path).expect("a name"), fs::read(&path).expect("an input"))).collect()
}

#[test]
fn fuzzer_inputs_pass_without_defects() {
    for (name, bytes) in inputs() {
        assert_eq!(failure_of_input(&bytes), None, "{name}");
    }
}
