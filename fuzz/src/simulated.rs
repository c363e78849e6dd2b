//! The module in a simulated server.

use redis_lock::host::Locks;
use redis_lock::server::{ClientId, Node, ServerKind, Tag};

use crate::parts::{CONNECTIONS, Part};
use crate::wire;

/// The most event-loop iterations at one time. More of them mean that the loop never sleeps.
const MAX_ITERATIONS: usize = 1000;
/// The time between two parts.
const PAUSE_US: i64 = 1_000;
/// A time that is longer than anything is kept for disconnected clients.
const LONG_US: i64 = 60_000_000;

/// Sends the parts to a new server.
///
/// # Panics
///
/// If the module does something that it must not do, or keeps something after all clients have disconnected.
pub fn feed(parts: &[Part<'_>]) {
    Node::forget_all();
    // The kinds differ in the time of replies, which the histories cover.
    let node = Node::new::<Locks>(ServerKind::Redis70);
    let clients: [ClientId; CONNECTIONS] = std::array::from_fn(|_| node.connect());
    let mut arrived = vec![Vec::new(); CONNECTIONS];
    let mut tag: Tag = 0;
    for &(connection, bytes) in parts {
        let before = wire::commands(&arrived[connection]).len();
        arrived[connection].extend(bytes);
        for words in wire::commands(&arrived[connection]).split_off(before) {
            tag += 1;
            node.send(clients[connection], tag, words);
        }
        settle(node);
        Node::pass_us(PAUSE_US);
    }
    clients.into_iter().for_each(|client| node.hang_up(client));
    settle(node);
    Node::pass_us(LONG_US);
    settle(node);
    for (name, count) in node.info() {
        assert!(!["waiters", "sessions"].contains(&name.as_str()) || count == 0, "{name}: {count}");
    }
}

/// Runs the event loop until no work is due at this time.
fn settle(node: Node) {
    for _ in 0..MAX_ITERATIONS {
        if node.next_wake().is_none_or(|at| at > node.now_ms()) {
            return;
        }
        node.turn();
        node.event_log();
        node.stream();
    }
    panic!("the loop never sleeps");
}
