//! The package on real servers: `SERVER` and `MODULE` name the server and the module, as for the tests of the module.

mod acquiring;
mod attacks;
#[cfg(feature = "blocking")]
mod blocking;
mod calls;
#[cfg(feature = "cluster")]
mod cluster;
mod commands;
mod configuration;
mod dropping;
mod examples;
mod failover;
mod kinds;
mod late;
mod losing;
mod outages;
mod review;
mod rslock;
mod without_module;

use std::time::Duration;

use redis_lock_client::{Locks, redis};
use support::{Reply, Server, Setup};

/// Longer than any test waits.
const LONG: Duration = Duration::from_secs(60);

fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

async fn locks_at(port: u16) -> Locks {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).expect("an address");
    Locks::new(client).await.expect("a server that replies")
}

async fn started() -> (Server, Locks) {
    let server = Setup::new().start();
    let locks = locks_at(server.port()).await;
    (server, locks)
}

fn waiters(server: &Server, name: &str) -> i64 {
    support::waiters_of(&mut server.client(), name)
}

/// Waits, without blocking the runtime.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(ms(5)).await;
    }
}

fn is_free(server: &Server, name: &str) -> bool {
    server.ask(&format!("EXISTS {name}")) == Reply::Int(0)
}
