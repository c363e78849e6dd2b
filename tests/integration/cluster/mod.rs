//! Locks in a cluster whose slots move: what a transcript of one node cannot say.

mod channels;
mod contended;
mod failovers;
mod lost_slots;
mod moving;
mod reshard;
mod scene;
mod slots;
