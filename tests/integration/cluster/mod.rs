//! Locks in a cluster whose slots move and whose masters are replaced.

mod channels;
mod contended;
mod failovers;
mod scene;
mod sessions;
mod slots;
