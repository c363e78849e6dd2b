//! What serves those who wait, and what does not: docs/waking.md.

mod contended_leases;
mod freeing;
mod io_threads;
mod overwriting;
mod shared;
mod silent_timer;
mod standstill;
mod write_fences;
