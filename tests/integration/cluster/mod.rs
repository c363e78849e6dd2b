//! Locks in a cluster, whose slots move.

mod channels;
mod lost_slots;
mod moving;
mod reshard;
mod scene;
mod shared_slots;
mod slots;

pub use scene::Scene;
