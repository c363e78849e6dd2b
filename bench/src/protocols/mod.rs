//! How clients lock with Redis today, and with this module: one protocol for each file, all spoken by the same engine.

mod native;
mod notified;
pub mod permit_scripts;
mod ping;
mod polled_permit;
pub mod redisson;
mod redisson_permit;
pub mod scripts;
mod set_nx;
mod signal_list;
mod subscription;
mod token;

pub use native::{Native, PERMITS};
pub use notified::Notified;
pub use ping::Ping;
pub use polled_permit::PolledPermit;
pub use redisson::Redisson;
pub use redisson_permit::RedissonPermit;
pub use set_nx::SetNx;
pub use signal_list::SignalList;

use crate::engine::{Line, Reply, Wire};
use scripts::Script;

/// How long a lock is held at most, in milliseconds.
pub type Lease = u32;

/// How far a client has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Pending,
    Granted,
    Released,
}

/// A way to lock.
pub trait Protocol {
    fn name(&self) -> &'static str;

    /// The connections that each client has.
    fn lines(&self) -> usize {
        1
    }

    /// Whether one request gets a free lock, so that many cycles can be sent before the first is answered.
    fn can_be_sent_ahead(&self) -> bool {
        true
    }

    /// The scripts that the server must know before.
    fn scripts(&self) -> &'static [Script] {
        &[]
    }

    /// Client `number`'s part in it, for one lock.
    fn party(&self, number: usize, lock: &str, lease: Lease) -> Box<dyn Party>;

    /// The command line that lets somebody else hold the lock, until the Unix time in milliseconds.
    fn held_by_another(&self, lock: &str, until_ms: i64) -> Vec<String> {
        vec![format!("SET {lock} somebody-else PXAT {until_ms}")]
    }
}

/// One client that follows a protocol. Requests are answered in the order in which they were sent on one line.
pub trait Party {
    /// Begins to acquire the lock; it goes on until the lock is its own.
    fn acquire(&mut self, wire: &mut Wire<'_>);

    fn release(&mut self, wire: &mut Wire<'_>);

    fn on_reply(&mut self, line: Line, reply: Reply, wire: &mut Wire<'_>) -> Progress;

    /// The time that was set with [`Wire::wake_after`] is over.
    fn on_alarm(&mut self, _wire: &mut Wire<'_>) {}
}

/// What a reply is the answer to, for parties that do no more than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Acquire,
    Release,
}

/// Every protocol by which clients can wait for a lock; this module's own is the first.
pub const CONTENDERS: [&dyn Protocol; 5] =
    [&Native::MUTEX, &SetNx::POLL_1_MS, &SetNx::POLL_100_MS, &SignalList, &Redisson];

#[track_caller]
fn unexpected(reply: &Reply) -> ! {
    panic!("an answer that the protocol does not know: {reply:?}")
}
