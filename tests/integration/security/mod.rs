//! What a client with few rights can do to others, and what its rights rule out: docs/security.md names these tests.

mod borrowed_rights;
mod changed_rights;
mod crowding;
mod database_rights;
mod forgery;
mod holding_up;
mod key_rights;
mod secrecy;
mod selectors;

use support::{Client, Server, bytes_of};

/// What an application needs to use locks, and nothing by which it could look at them.
const USE: &str = "+lock.acquire +lock.reenter +lock.share +lock.release +lock.extend";

/// A connection of a user with these rules and no others.
#[track_caller]
fn user(server: &Server, name: &str, rules: &str) -> Client {
    server.client().ok(&format!("ACL SETUSER {name} reset on nopass {rules}"));
    let mut client = server.client();
    client.ok(&format!("AUTH {name} any"));
    client
}

/// Each of these is refused because of the user's rights.
#[track_caller]
fn are_refused(client: &mut Client, lines: &[&str]) {
    for line in lines {
        let reply = client.call(&bytes_of(line));
        assert_eq!(reply.code(), "NOPERM", "{line}: {reply:?}");
    }
}
