//! The fenced blocks of the documentation.

use std::fs;
use std::path::{Path, PathBuf};

use support::repository;

/// The guide whose programs are in two blocks each: what a reader copies, and tasks that contend.
pub const MULTIPLEXED: &str = "docs/guides/multiplexed-clients.md";

/// The guide whose programs are in two blocks each: what a reader copies, and work under a lock.
pub const LOSING: &str = "docs/guides/losing-a-lock.md";

/// The guide whose programs use the package for Python.
pub const MIGRATION: &str = "docs/guides/migration.md";

/// A fenced block.
#[derive(Clone)]
pub struct Block {
    pub document: String,
    /// The number of its first line in the document.
    pub first: usize,
    pub language: String,
    pub lines: Vec<String>,
}

/// Every block of the documents.
pub fn all_blocks() -> Vec<Block> {
    documents().iter().flat_map(|path| blocks_of(path)).collect()
}

/// Those of one language.
pub fn every_block(language: &str) -> Vec<Block> {
    all_blocks().into_iter().filter(|block| block.language == language).collect()
}

/// What a guide with two blocks in a language shows: what readers copy, and what is done with it.
#[track_caller]
pub fn two_blocks(document: &str, language: &str) -> [String; 2] {
    let blocks = every_block(language).into_iter().filter(|block| block.document == document);
    let blocks: Vec<String> = blocks.map(|block| block.lines.join("\n")).collect();
    blocks.try_into().expect("two blocks")
}

/// README.md, CONTRIBUTING.md, SECURITY.md and the pages below docs/.
pub fn documents() -> Vec<PathBuf> {
    let mut found = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| repository().join(name)).to_vec();
    let mut folders = vec![repository().join("docs")];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for path in entries.map(|entry| entry.expect("a folder entry").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns the lines of a text outside its blocks.
pub fn prose(text: &str) -> String {
    let mut is_code = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn blocks_of(path: &Path) -> Vec<Block> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let document = path.strip_prefix(repository()).unwrap_or(path).display().to_string();
    blocks_in(&document, &text)
}

/// The blocks of a text.
pub fn blocks_in(document: &str, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(Block, usize)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let fence = line.trim_start();
        let indent = line.len() - fence.len();
        if let Some((mut block, inside)) = open.take() {
            if fence.starts_with("```") {
                blocks.push(block);
            } else {
                block.lines.push(line.get(inside.min(indent)..).unwrap_or_default().to_owned());
                open = Some((block, inside));
            }
        } else if let Some(language) = fence.strip_prefix("```") {
            let (document, language) = (document.to_owned(), language.trim().to_owned());
            open = Some((Block { document, first: number + 1, language, lines: Vec::new() }, indent));
        }
    }
    assert!(open.is_none(), "{document}: a block that is not closed");
    blocks
}
