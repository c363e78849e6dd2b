//! The load: clients that ask for locks in every way. The history checks the replies.

mod bursts;
mod claim;
mod client;
pub mod network;
mod notified;
mod observer;
mod quiet;

pub use bursts::burst_forever;
pub use client::Client;
pub use notified::Notified;
pub use observer::observe;
pub use quiet::run_quiet_locks;
