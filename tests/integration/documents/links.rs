//! The links of the documents, and the paths and numbers that they name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use support::repository;

use super::blocks::{documents, prose, spans};

/// The folders that builds and tests create.
const GENERATED: [&str; 2] = ["target", "proptest-regressions"];

fn read(path: impl AsRef<Path>) -> String {
    let path = repository().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn entries(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(repository().join(folder)).expect("a folder");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

/// Returns the targets of the links in a text, without those to other sites.
fn targets(text: &str) -> Vec<String> {
    let text = prose(text);
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://")).map(str::to_owned).collect()
}

/// Returns the headings of a document as links name them: small letters, digits and hyphens.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let kept = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
    let anchor = |line: &str| line.trim_start_matches('#').trim_start().to_lowercase().chars().filter(kept).collect();
    headings.map(anchor).map(|anchor: String| anchor.replace(' ', "-")).collect()
}

/// Returns the file and the heading to which a link in a document leads.
fn destination(document: &Path, target: &str) -> (PathBuf, Option<String>) {
    let (file, anchor) =
        target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor.to_owned())));
    let folder = document.parent().expect("a folder");
    (if file.is_empty() { document.to_owned() } else { folder.join(file) }, anchor)
}

#[test]
fn every_link_leads_somewhere() {
    let mut wrong = Vec::new();
    for document in documents() {
        for target in targets(&read(&document)) {
            let (file, anchor) = destination(&document, &target);
            if !file.exists() || anchor.is_some_and(|anchor| !anchors(&read(&file)).contains(&anchor)) {
                wrong.push(format!("{}: {target}", document.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn readme_leads_to_every_guide() {
    let readme = repository().join("README.md");
    let files: BTreeSet<PathBuf> =
        targets(&read(&readme)).iter().map(|target| destination(&readme, target).0).collect();
    let guides = documents().into_iter().filter(|path| path.starts_with(repository().join("docs/guides")));
    let missing: Vec<PathBuf> = guides.filter(|path| !files.contains(path)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_path_in_contributing_exists() {
    let spans = spans(&read("CONTRIBUTING.md")).into_iter();
    let paths: BTreeSet<String> = spans.filter(|span| span.contains('/') && !span.contains(['=', ' '])).collect();
    assert!(paths.len() > 20, "{paths:?}");
    let missing: Vec<&String> = paths.iter().filter(|path| !repository().join(path).exists()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_folder_is_in_contributing() {
    let page = read("CONTRIBUTING.md");
    let cells: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).collect();
    let named: BTreeSet<String> =
        spans(&cells.join(" ")).iter().filter_map(|path| Some(path.split('/').next()?.to_owned())).collect();
    let folders = entries("").into_iter().filter(|path| path.is_dir());
    let folders = folders.map(|path| path.file_name().expect("a name").display().to_string());
    let missing: Vec<String> = folders
        .filter(|name| !name.starts_with('.') && !GENERATED.contains(&&**name) && !named.contains(name))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn reliability_counts_faults_and_mutants() {
    let faults = read("src/simulated/faults.rs").matches("says \"").count();
    let mutants = entries("simulator/mutants").iter().filter(|path| path.extension().is_some()).count();
    let page = read("docs/reliability.md");
    assert!(page.contains(&format!("has {faults} faults")), "there are {faults} faults");
    assert!(page.contains(&format!("has {mutants} mutants")), "there are {mutants} mutants");
}
