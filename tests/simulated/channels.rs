//! The simulated server ends where Redis 7.0 would put a message into the middle of a reply.

use redis_lock::server::{Node, ServerKind};

use super::witness::Witness;

/// A client subscribes to a channel and sends these commands.
fn subscriber_sends(lines: &[&str]) {
    Node::forget_all();
    let node = Node::new::<Witness>(ServerKind::Redis70);
    let client = node.connect();
    for line in ["HELLO 3", "SSUBSCRIBE news"].iter().chain(lines) {
        node.send(client, 0, line.split(' ').map(|word| word.as_bytes().to_vec()).collect());
    }
    node.turn();
}

#[test]
#[should_panic(expected = "a message in the middle of a reply")]
fn message_in_own_exec_ends_redis_7_0() {
    subscriber_sends(&["MULTI", "WITNESS.PUBLISH news hello", "EXEC"]);
}

#[test]
#[should_panic(expected = "a message in the middle of a reply")]
fn message_in_event_of_own_command_ends_redis_7_0() {
    subscriber_sends(&["WITNESS.LISTEN", "WITNESS.REPORT news", "SET door x", "DEL door"]);
}
