//! `lock.wake-foreign`: those who wait for a lock by the means of python-redis-lock or Redisson are woken when it is left free.

mod fleets;
mod redisson_channel;
mod same_slot;
mod signals;
mod transactions;

use support::{Client, Reply, Server, Setup};

/// A server that wakes others, and a client of it.
#[track_caller]
fn start() -> (Server, Client) {
    started(&Setup::new())
}

#[track_caller]
fn started(setup: &Setup) -> (Server, Client) {
    let server = setup.clone().config("lock.wake-foreign yes").start();
    let client = server.client();
    (server, client)
}

/// Subscribes with a command for that, such as SUBSCRIBE.
#[track_caller]
fn subscribe(server: &Server, command: &str, channel: &str) -> Client {
    let mut client = server.client();
    assert_eq!(client.run(&format!("{command} {channel}")).items()[0], command.to_lowercase().as_str());
    client
}

/// The next message says that the lock is free.
#[track_caller]
fn hears_unlock(subscriber: &mut Client) {
    assert_eq!(subscriber.receive().items()[2], "0");
}

/// No message has come, and a transaction of releases was answered before.
#[track_caller]
fn has_heard_nothing(subscriber: &mut Client) {
    assert_eq!(subscriber.run("PING"), Reply::list([Reply::text("pong"), Reply::text("")]));
}
