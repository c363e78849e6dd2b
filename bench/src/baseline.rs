//! The C libraries in bench/baseline that make servers comparable, compiled for the run.

use support::Library;

/// The module that does nothing of its own.
pub fn peer() -> Library {
    Library::compile("bench/baseline/peer.c")
}

/// What takes chance and time out of a server.
pub fn steady() -> Library {
    Library::compile("bench/baseline/steady.c")
}
