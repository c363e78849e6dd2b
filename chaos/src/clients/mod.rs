//! The load: clients that ask for locks in every way, and check each reply.

mod bursts;
mod claim;
mod client;
pub mod network;
mod notified;
mod observer;
mod quiet;

pub use bursts::burst_forever;
pub use claim::Kind;
pub use client::Client;
pub use notified::Notified;
pub use observer::observe;
pub use quiet::run_quiet_locks;

use crate::report::Rule;

const KEPT: Rule = "a client that was granted a lock holds it until its lease ends";
const SESSION: Rule = "a session has its lock, or gets it back, while its connection is open";
const EXPECTED: Rule = "only replies that the contract allows";
const ANSWERED: Rule = "every request is answered";
