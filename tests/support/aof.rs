//! Reading the commands that the server wrote into its append-only file.

use std::fs;
use std::path::{Path, PathBuf};

/// The incremental part of an append-only file that was written without an RDB preamble.
pub struct Aof {
    directory: PathBuf,
}

impl Aof {
    /// The configuration under which each reply comes after its effects are in the file, as plain commands.
    pub const CONFIG: &'static str = "appendonly yes\nappendfsync always\naof-use-rdb-preamble no";

    pub fn of(directory: &Path) -> Self {
        Self { directory: directory.join("appendonlydir") }
    }

    /// Every command in order, words joined by a space, without SELECT.
    pub fn commands(&self) -> Vec<String> {
        let text = fs::read(self.incremental()).expect("a readable append-only file");
        let mut rest = text.as_slice();
        let mut commands = Vec::new();
        while let Some(words) = next_command(&mut rest) {
            let line = lines_of(&words);
            if !line.starts_with("SELECT ") {
                commands.push(line);
            }
        }
        commands
    }

    fn incremental(&self) -> PathBuf {
        fs::read_dir(&self.directory)
            .expect("a folder with the append-only files")
            .map(|entry| entry.expect("a folder entry").path())
            .filter(|path| path.to_string_lossy().ends_with(".incr.aof"))
            .max()
            .expect("an incremental append-only file")
    }
}

/// The words of a command as one line of text.
pub fn lines_of(words: &[Vec<u8>]) -> String {
    let words: Vec<String> = words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    words.join(" ")
}

/// None at the end of the file, and before a command that is not yet complete.
fn next_command(rest: &mut &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut at = *rest;
    let mut header = next_line(&mut at)?;
    while header.starts_with(b"#") {
        header = next_line(&mut at)?;
    }
    let count = number(header.strip_prefix(b"*")?)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let length = number(next_line(&mut at)?.strip_prefix(b"$")?)?;
        words.push(at.get(..length)?.to_vec());
        at = at.get(length + 2..)?;
    }
    *rest = at;
    Some(words)
}

fn next_line<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let line = rest.get(..end)?;
    *rest = rest.get(end + 2..)?;
    Some(line)
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
