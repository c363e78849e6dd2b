//! The links of the documents: each leads to something that is there, and README.md leads to every guide.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use support::repository;

use super::blocks::{documents, prose};

/// Returns the targets of the links in a text, without those to other sites.
fn targets(text: &str) -> Vec<String> {
    let text = prose(text);
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://")).map(str::to_owned).collect()
}

/// The headings of a document as links name them: small letters, digits and hyphens.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text
        .lines()
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    let kept = |c: char| c.is_alphanumeric() || "- _".contains(c);
    headings
        .map(|heading| heading.to_lowercase().chars().filter(|c| kept(*c)).collect::<String>().replace(' ', "-"))
        .collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The file and the heading to which a link in a document leads.
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
            let leads = file.exists() && anchor.is_none_or(|anchor| anchors(&read(&file)).contains(&anchor));
            if !leads {
                wrong.push(format!("{}: {target}", document.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_readme_leads_to_every_guide() {
    let readme = repository().join("README.md");
    let files = targets(&read(&readme)).into_iter().map(|target| destination(&readme, &target).0);
    let led_to: BTreeSet<PathBuf> = files.collect();
    let guides = documents().into_iter().filter(|path| path.starts_with(repository().join("docs/guides")));
    let guides: BTreeSet<PathBuf> = guides.collect();
    assert!(guides.len() > 4, "{guides:?}");
    let missing: Vec<&PathBuf> = guides.difference(&led_to).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn links_and_headings_are_found() {
    let text = "# A page\n\n## What is `this`, then?\n\n[one](b.md#c) [two](#what-is-this-then)\n```\n[no](x)\n```\n";
    assert_eq!(targets(text), ["b.md#c", "#what-is-this-then"]);
    assert_eq!(anchors(text), ["a-page", "what-is-this-then"].map(str::to_owned).into());
    let (file, anchor) = destination(Path::new("docs/a.md"), "../b.md#c");
    assert_eq!((file.as_path(), anchor.as_deref()), (Path::new("docs/../b.md"), Some("c")));
}
