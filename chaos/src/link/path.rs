//! The path of a connection through a proxy, which can disturb it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use support::proxy::Road;

/// What the proxy does to a connection.
pub type Effect = fn(&Road);

pub struct NetworkPath {
    road: Arc<Road>,
    is_disturbed: AtomicBool,
}

impl NetworkPath {
    pub fn new(road: Road) -> Self {
        Self { road: Arc::new(road), is_disturbed: AtomicBool::new(false) }
    }

    /// Plans effects, each some time after the one before. They keep the connection open, also after the client has
    /// closed it.
    pub fn plan(&self, effects: Vec<(Duration, Effect)>) {
        self.is_disturbed.store(true, Ordering::Relaxed);
        let road = Arc::clone(&self.road);
        thread::spawn(move || {
            for (after, effect) in effects {
                sleep(after);
                effect(&road);
            }
        });
    }

    pub fn is_disturbed(&self) -> bool {
        self.is_disturbed.load(Ordering::Relaxed)
    }
}
