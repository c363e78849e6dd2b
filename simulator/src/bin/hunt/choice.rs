//! Chooses the mutants that are hunted for a change.

use std::path::Path;

use crate::patch::Patch;
use crate::tree::{git, run};

/// Returns the patches of files that have changed since a revision, and up to `more` others, which the latest commit
/// determines. If the revision does not exist, as in a copy without a history, no file has changed.
///
/// # Errors
///
/// The message of git.
pub fn of_change(root: &Path, revision: &str, more: usize, patches: Vec<Patch>) -> Result<Vec<Patch>, String> {
    let commit = run(git(root).args(["rev-parse", "HEAD"]))?;
    let changed = run(git(root).args(["diff", "--name-only", revision])).unwrap_or_default();
    Ok(choose(&changed.lines().map(Path::new).collect::<Vec<_>>(), &commit, more, patches))
}

fn choose(changed: &[&Path], commit: &str, more: usize, patches: Vec<Patch>) -> Vec<Patch> {
    let is_concerned = |patch: &Patch| {
        patch.files.iter().chain([&patch.path]).any(|file| changed.iter().any(|path| file.ends_with(path)))
    };
    let (mut chosen, mut others): (Vec<_>, Vec<_>) = patches.into_iter().partition(is_concerned);
    others.sort_by_key(|patch| hash(&[commit, &patch.name]));
    chosen.extend(others.into_iter().take(more));
    chosen
}

/// FNV-1a, which is the same for every version of the compiler.
fn hash(words: &[&str]) -> u64 {
    let bytes = words.iter().flat_map(|word| word.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patches() -> Vec<Patch> {
        let patch = |number: usize| Patch {
            name: format!("mutant-{number}"),
            path: format!("/r/simulator/mutants/mutant-{number}.patch").into(),
            why: String::new(),
            says: String::new(),
            input: None,
            files: vec![format!("src/{number}.rs").into()],
        };
        (0..20).map(patch).collect()
    }

    fn names(changed: &[&str], commit: &str) -> Vec<String> {
        let changed: Vec<&Path> = changed.iter().map(Path::new).collect();
        choose(&changed, commit, 3, patches()).into_iter().map(|patch| patch.name).collect()
    }

    #[test]
    fn changed_files_and_three_others_are_chosen() {
        let names = names(&["src/7.rs", "simulator/mutants/mutant-9.patch", "README.md"], "abc");
        assert_eq!(names[..2], ["mutant-7", "mutant-9"]);
        assert_eq!(names.len(), 5);
    }

    #[test]
    fn commit_decides_the_others() {
        assert_eq!(names(&[], "abc"), names(&[], "abc"));
        assert!((0..10).any(|commit| names(&[], &commit.to_string()) != names(&[], "abc")));
    }
}
