//! How a key is opened, what it may hold, and whose it is: the same words in a server and in a simulated one.

/// How a key is opened.
#[derive(Clone, Copy)]
pub enum Mode {
    Read,
    Write,
}

/// The type of value behind a key, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// There is no key.
    Empty,
    String,
    Hash,
    Other,
}

/// Whether a key is this node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// It is. Always, outside a cluster.
    Ours,
    /// Its slot is another node's. Or the slot is on its way there and the key is missing here: it may exist there.
    Elsewhere,
    /// The cluster is down.
    Unserved,
}

/// A write that changes nothing and creates nothing, by what the key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// `SETRANGE key 0 ""`: no bytes into a String or an empty key.
    String,
    /// `HDEL key ""`: the removal of a field that no Hash of the module has.
    Hash,
}
