//! Published packages and this module, each by clients in processes of their own.

mod attempts;
mod peers;
mod round;
mod rust_worker;
mod worker;

pub use attempts::{acquire_times, gave_up, grants, overlaps, release_to_grant};
pub use peers::{Kind, Peer, one_lock, skewed, two_permits};
pub use round::{Round, Terms, run};
pub use rust_worker::{Options as WorkerOptions, run as run_worker};
