//! Patches of `simulator/mutants`. Each puts one defect into the module:
//!
//! ```text
//! Why: one sentence that says what the module does wrong
//! Says: words that the checker must say
//! Input: name of a file in fuzz/found/histories (optional: this history finds the defect)
//!
//! --- a/src/core/lock.rs
//! +++ b/src/core/lock.rs
//! @@ ...
//! ```

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the patches.
const FOLDER: &str = "simulator/mutants";

/// The folder of the histories that a fuzzer has found.
const INPUTS: &str = "fuzz/found/histories";

/// A patch with its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The name of the file, without its extension.
    pub name: String,
    pub path: PathBuf,
    pub why: String,
    pub says: String,
    pub input: Option<PathBuf>,
    /// The files that it changes, relative to the repository.
    pub files: Vec<PathBuf>,
}

/// Reads all patches, in the order of their names.
///
/// # Errors
///
/// A file that cannot be read, or one without a header.
pub fn read_all(root: &Path) -> Result<Vec<Patch>, String> {
    let folder = root.join(FOLDER);
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        parse(root, &path, &text).ok_or_else(|| format!("{}: it lacks Why, Says or a change", path.display()))
    };
    paths.into_iter().map(read).collect()
}

fn parse(root: &Path, path: &Path, text: &str) -> Option<Patch> {
    let header =
        |name: &str| text.lines().take_while(|line| !line.starts_with("--- ")).find_map(|line| line.strip_prefix(name));
    let files: Vec<PathBuf> = text.lines().filter_map(|line| line.strip_prefix("+++ b/")).map(PathBuf::from).collect();
    Some(Patch {
        name: path.file_stem()?.to_str()?.to_owned(),
        path: path.to_owned(),
        why: header("Why: ")?.to_owned(),
        says: header("Says: ")?.to_owned(),
        input: header("Input: ").map(|name| root.join(INPUTS).join(name)),
        files: Some(files).filter(|files| !files.is_empty())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Why: the limit is too high
Says: is granted beside
Input: one

--- a/src/a.rs
+++ b/src/a.rs
@@ -1 +1 @@
";

    #[test]
    fn header_and_files_are_read() {
        let patch = parse(Path::new("/r"), Path::new("/r/limit-too-high.patch"), TEXT).unwrap();
        assert_eq!(patch.name, "limit-too-high");
        assert_eq!((patch.why.as_str(), patch.says.as_str()), ("the limit is too high", "is granted beside"));
        assert_eq!(patch.input, Some(PathBuf::from("/r/fuzz/found/histories/one")));
        assert_eq!(patch.files, [PathBuf::from("src/a.rs")]);
    }

    #[test]
    fn patch_without_words_is_refused() {
        assert_eq!(parse(Path::new("/r"), Path::new("/r/a.patch"), &TEXT.replace("Says", "Said")), None);
    }

    #[test]
    fn each_input_of_the_fuzzer_has_a_patch() {
        let root = crate::repository();
        let patches = read_all(&root).unwrap();
        for input in fs::read_dir(root.join(INPUTS)).unwrap().map(|entry| entry.unwrap().path()) {
            assert!(patches.iter().any(|patch| patch.input.as_ref() == Some(&input)), "{}", input.display());
        }
    }
}
