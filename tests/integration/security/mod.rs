//! What a client with few rights can do to others, where a transcript (tests/scenarios/security) cannot say it: sizes of memory,
//! limits on connections, and texts in which no token may be. docs/security.md names these tests.

mod limits;
mod tokens;

use support::{Client, Server};

/// The commands that use locks. None of them shows the token of another client.
const USE: &str = "+lock.acquire +lock.reenter +lock.share +lock.release +lock.extend";

/// Returns a connection of a user with these rules and no others.
#[track_caller]
fn user(server: &Server, name: &str, rules: &str) -> Client {
    server.client().ok(&format!("ACL SETUSER {name} reset on nopass {rules}"));
    let mut client = server.client();
    client.ok(&format!("AUTH {name} any"));
    client
}
