//! What a player needs of a server, real or simulated.

use crate::{Flavour, Reply};

use super::{Change, Record};

/// All keys with their values and times, as lines to compare.
pub type Snapshot = Vec<String>;

/// A server with a module in it.
pub trait Stage {
    fn kind(&self) -> Flavour;

    fn is_simulated(&self) -> bool;

    /// Opens a connection, that of `r` to the replica. Returns the server's number for it.
    fn open(&mut self, client: &str) -> i64;

    fn close(&mut self, client: &str);

    /// Sends commands in one write.
    fn send(&mut self, client: &str, commands: &[Vec<Vec<u8>>]);

    /// Returns the next reply, for which it waits.
    fn receive(&mut self, client: &str) -> Reply;

    /// Returns whether the client is blocked, and its reply is therefore still to come.
    fn is_blocked(&mut self, client: &str) -> bool;

    /// Returns the lines that were recorded since the last call.
    fn news(&mut self, record: Record) -> Vec<String>;

    fn snapshot(&mut self) -> Snapshot;

    /// Returns the time of the server's wall clock.
    fn now_ms(&self) -> i64;

    fn wait(&mut self, ms: u64);

    /// Stops the server, or resumes it.
    fn run_server(&mut self, runs: bool);

    /// Changes the cluster that the server is in, and returns when the server knows.
    fn change(&mut self, change: &Change);
}
