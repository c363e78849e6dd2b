//! Keys as locks: reading the three layouts, and writing them with replication and events.

pub mod compat_wake;
pub mod effects;
pub mod lock_handles;
pub mod lock_key;
pub mod share_key;
