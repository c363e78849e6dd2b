//! The documents, and their fenced blocks.

use std::fs;
use std::path::{Path, PathBuf};

use support::repository;

/// The guides whose programs are in two blocks each: the code to copy, and an example of its use.
pub const MULTIPLEXED: &str = "docs/guides/multiplexed-clients.md";
pub const LOSING: &str = "docs/guides/losing-a-lock.md";

/// A fenced block.
#[derive(Clone)]
pub struct Block {
    pub document: String,
    /// The number of its first line in the document.
    pub first: usize,
    pub language: String,
    pub lines: Vec<String>,
}

impl Block {
    pub fn place(&self) -> String {
        format!("{}, line {}", self.document, self.first)
    }
}

/// Returns README.md, CONTRIBUTING.md, SECURITY.md and the pages below docs/.
pub fn documents() -> Vec<PathBuf> {
    let mut found = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| repository().join(name)).to_vec();
    let mut folders = vec![repository().join("docs")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            match path.extension() {
                None if path.is_dir() => folders.push(path),
                Some(extension) if extension == "md" => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// Returns every block of the documents.
pub fn all_blocks() -> Vec<Block> {
    documents().iter().flat_map(|path| blocks_of(path)).collect()
}

/// Returns those of one language.
pub fn every_block(language: &str) -> Vec<Block> {
    all_blocks().into_iter().filter(|block| block.language == language).collect()
}

/// Returns the two blocks of a guide in a language.
#[track_caller]
pub fn two_blocks(document: &str, language: &str) -> [String; 2] {
    let blocks = every_block(language).into_iter().filter(|block| block.document == document);
    let blocks: Vec<String> = blocks.map(|block| block.lines.join("\n")).collect();
    blocks.try_into().expect("two blocks")
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

/// Returns the spans between single backticks outside the blocks.
pub fn spans(text: &str) -> Vec<String> {
    prose(text).split('`').skip(1).step_by(2).map(|span| span.replace('\n', " ")).collect()
}

fn blocks_of(path: &Path) -> Vec<Block> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let document = path.strip_prefix(repository()).unwrap_or(path).display().to_string();
    let mut blocks = Vec::new();
    // The open block, and the indentation of its fence.
    let mut open: Option<(Block, usize)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let fence = line.trim_start();
        match (&mut open, fence.strip_prefix("```")) {
            (Some(_), Some(_)) => blocks.extend(open.take().map(|(block, _)| block)),
            (Some((block, indent)), None) => block.lines.push(line.get(*indent..).unwrap_or_default().to_owned()),
            (None, Some(language)) => {
                let (document, language) = (document.clone(), language.trim().to_owned());
                open = Some((Block { document, first: number + 1, language, lines: vec![] }, line.len() - fence.len()));
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{document}: a block that is not closed");
    blocks
}
