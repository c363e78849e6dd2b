//! The containers. Each of them changes in small steps, however many entries it has.

mod agenda;
mod arena;
mod connections;
mod incremental_table;
mod name_map;
mod slab;
mod sweep;
mod timer_queue;

pub use agenda::{AT_ONCE, Agenda, is_resting};
pub use arena::{Arena, Cursor, Id};
pub use connections::Connections;
pub use incremental_table::IncrementalTable;
pub use name_map::NameMap;
pub use slab::Slot;
pub use sweep::Sweep;
pub use timer_queue::{Entry, NEVER, TimerQueue};
