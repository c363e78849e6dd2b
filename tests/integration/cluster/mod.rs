//! Locks in a cluster, whose slots move.

mod lost_slots;
mod moving;
mod scene;
mod slots;
