//! The conditions: whether the module may write, whether it may grant a lock, and whether this node serves a slot.

pub mod suspension;
pub mod write_permission;
