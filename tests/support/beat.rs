//! A client that writes again and again, each time when the last write is answered: the append-only file then shows
//! where among the writes of others it had its turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::{Server, eventually};

/// The command that it sends.
pub const BEAT: &str = "INCR beat";

pub struct Beat {
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Beat {
    /// Returns when it has begun.
    #[track_caller]
    pub fn start(server: &Server) -> Self {
        let (mut client, mut observer) = (server.client(), server.client());
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let thread = thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                assert!(client.run(BEAT).int() > 0);
            }
        });
        eventually("the first beat", || observer.run("EXISTS beat") == 1);
        Self { over, thread }
    }

    /// Ends it; every write has been answered.
    #[track_caller]
    pub fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("every beat is answered");
    }
}
