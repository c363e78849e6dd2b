//! rslock, told what to do as the scripts of tests/interop are.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use rslock::{Lock, LockManager};

/// Starts a thread that takes orders, until nobody gives any.
pub fn start(port: u16, answers: Sender<String>) -> Sender<String> {
    let (sender, orders) = channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(obey(port, &orders, &answers));
    });
    sender
}

async fn obey(port: u16, orders: &Receiver<String>, answers: &Sender<String>) {
    let manager = LockManager::new(vec![format!("redis://127.0.0.1:{port}/")]);
    let mut held: Option<Lock> = None;
    for order in orders {
        let words: Vec<&str> = order.split(' ').collect();
        let answer = if let [_, "acquire", name, lease_s, _] = words[..] {
            let lease = Duration::from_secs(lease_s.parse().expect("a number"));
            held = manager.lock(name, lease).await.ok();
            held.as_ref().map_or_else(|| "gave up".to_owned(), |_| format!("held {}", version()))
        } else {
            manager.unlock(held.as_ref().expect("a lock")).await;
            "released".to_owned()
        };
        if answers.send(format!("rslock {answer}")).is_err() {
            return;
        }
    }
}

fn version() -> &'static str {
    let lock = include_str!("../../../../Cargo.lock");
    let after = lock.split_once("name = \"rslock\"\nversion = \"").map(|(_, after)| after);
    after.and_then(|after| after.split('"').next()).expect("a crate in Cargo.lock")
}
