//! A copy of the sources in `target/mutants`, to which patches are applied, and its builds.
//!
//! A file of the copy is written only if it differs. So cargo builds only what a patch changes.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::patch::Patch;

/// A copy of the sources.
pub struct Tree {
    root: PathBuf,
    tree: PathBuf,
    /// The target folder. The copy shares it with the repository, so that common dependencies are built once.
    target: PathBuf,
    /// The folder of the built programs.
    built: PathBuf,
}

impl Tree {
    /// Copies the files of the repository, except for those that git ignores.
    ///
    /// # Errors
    ///
    /// The message of git, or the reason why a file cannot be copied.
    pub fn copy(root: &Path) -> Result<Self, String> {
        let target = target(root);
        let [tree, built] = ["tree", "built"].map(|name| target.join("mutants").join(name));
        let copy = Self { root: root.to_owned(), tree, target, built };
        let files = run(git(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
        let is_there = |file: &PathBuf| root.join(file).is_file();
        let files: HashSet<PathBuf> =
            files.split('\0').filter(|file| !file.is_empty()).map(PathBuf::from).filter(is_there).collect();
        remove_others(&copy.tree, Path::new(""), &files)?;
        files.iter().try_for_each(|file| copy.copy_file(file))?;
        create_folder(&copy.built)?;
        Ok(copy)
    }

    fn copy_file(&self, file: &Path) -> Result<(), String> {
        let (from, to) = (self.root.join(file), self.tree.join(file));
        let bytes = fs::read(&from).map_err(|error| format!("{}: {error}", from.display()))?;
        if fs::read(&to).is_ok_and(|present| present == bytes) {
            return Ok(());
        }
        create_folder(to.parent().unwrap_or(&self.tree))?;
        fs::write(&to, bytes).map_err(|error| format!("{}: {error}", to.display()))
    }

    /// Checks that a patch can be applied.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be applied.
    pub fn check(&self, patch: &Patch) -> Result<(), String> {
        self.patch(patch, &["--dry-run"])
    }

    /// Builds the program `mutant` with a patch. Returns its path.
    ///
    /// The build is incremental. It has few optimizations, because each program runs once. It has no assertions,
    /// because the checker must find the defect.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be built.
    pub fn build(&self, patch: &Patch) -> Result<PathBuf, String> {
        let result = self.patch(patch, &[]).and_then(|()| self.build_patched(patch));
        patch.files.iter().try_for_each(|file| self.copy_file(file))?;
        result
    }

    fn build_patched(&self, patch: &Patch) -> Result<PathBuf, String> {
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--profile", "tool", "--locked", "--quiet", "--package", "simulator", "--bin", "mutant"]);
        for package in ["redis-lock", "simulator"] {
            for setting in ["opt-level = 1", "codegen-units = 256", "debug-assertions = false"] {
                cargo.arg("--config").arg(format!("profile.tool.package.{package}.{setting}"));
            }
        }
        cargo.arg("--target-dir").arg(&self.target).env("CARGO_INCREMENTAL", "1");
        run(cargo.current_dir(&self.tree)).map_err(|why| format!("{} cannot be built: {why}", patch.name))?;
        let (from, to) = (self.target.join("tool/mutant"), self.built.join(&patch.name));
        // The file at this path may be running, so it is not overwritten.
        _ = fs::remove_file(&to);
        fs::copy(&from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
        Ok(to)
    }

    fn patch(&self, patch: &Patch, arguments: &[&str]) -> Result<(), String> {
        let mut command = Command::new("patch");
        command.args(["-p1", "--batch", "--forward", "--silent", "--no-backup-if-mismatch", "--reject-file=-"]);
        command.args(arguments).arg("--input").arg(&patch.path);
        match run(command.current_dir(&self.tree)) {
            Ok(_) => Ok(()),
            Err(why) => Err(format!("{} cannot be applied: {why}", patch.path.display())),
        }
    }
}

/// Returns the target folder of the repository, which contains this program.
fn target(root: &Path) -> PathBuf {
    let program = std::env::current_exe().ok();
    program.and_then(|program| Some(program.ancestors().nth(2)?.to_owned())).unwrap_or_else(|| root.join("target"))
}

/// Removes the files of the copy that are not in the repository any more.
fn remove_others(tree: &Path, below: &Path, files: &HashSet<PathBuf>) -> Result<(), String> {
    let Ok(entries) = fs::read_dir(tree.join(below)) else { return Ok(()) };
    for entry in entries.filter_map(Result::ok) {
        let (path, file) = (entry.path(), below.join(entry.file_name()));
        if path.is_dir() {
            remove_others(tree, &file, files)?;
        } else if !files.contains(&file) {
            fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}

fn create_folder(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns a git command for this repository.
pub fn git(root: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(root);
    git
}

/// Runs a program and returns its output.
pub fn run(command: &mut Command) -> Result<String, String> {
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    let [written, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    if output.status.success() { Ok(written) } else { Err(format!("{written}{errors}")) }
}
