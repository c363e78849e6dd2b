//! The effects that a server sends to its replicas and the AOF.

/// A command with the database on which it works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    pub db: i32,
    pub words: Vec<Vec<u8>>,
}

/// The effects of one command, transaction, script or timer, which are sent together.
pub type Unit = Vec<Effect>;

impl Effect {
    pub(super) fn new<W: AsRef<[u8]>>(db: i32, words: impl IntoIterator<Item = W>) -> Self {
        Self { db, words: words.into_iter().map(|word| word.as_ref().to_vec()).collect() }
    }

    /// Returns the command as one line.
    pub fn line(&self) -> String {
        self.words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ")
    }
}
