//! The documents with their fenced blocks, and the programs of `examples`.

use std::fs;
use std::path::{Path, PathBuf};

use support::repository;

/// The extensions of programs, and their languages in the documents.
const EXTENSIONS: [(&str, &str); 4] = [("py", "python"), ("rb", "ruby"), ("php", "php"), ("c", "c")];

/// A fenced block, or a program of `examples`.
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

/// Returns every block of the documents, and every program of `examples`.
pub fn all_blocks() -> Vec<Block> {
    let programs = fs::read_dir(repository().join("examples/waiting")).expect("a folder of examples");
    let programs = programs.map(|entry| program(&entry.expect("a program").path()));
    documents().iter().flat_map(|path| blocks_of(path)).chain(programs).collect()
}

fn program(path: &Path) -> Block {
    let document = name_of(path);
    let language = EXTENSIONS.into_iter().find(|(extension, _)| document.ends_with(&format!(".{extension}")));
    let (_, language) = language.unwrap_or_else(|| panic!("{document}: an unknown language"));
    let lines = read(path).lines().map(str::to_owned).collect();
    Block { document, first: 1, language: language.to_owned(), lines }
}

/// Returns those of one language.
pub fn every_block(language: &str) -> Vec<Block> {
    all_blocks().into_iter().filter(|block| block.language == language).collect()
}

/// Returns the lines of a text outside its blocks.
fn prose(text: &str) -> String {
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

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the path from the repository's folder.
fn name_of(path: &Path) -> String {
    path.strip_prefix(repository()).unwrap_or(path).display().to_string()
}

fn blocks_of(path: &Path) -> Vec<Block> {
    let (text, document) = (read(path), name_of(path));
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
