//! The module in a simulated server.

use redis_lock::host::Locks;
use redis_lock::server::{ClientId, Node, ServerKind, Tag};

use crate::parts::{CONNECTIONS, Part};
use crate::wire;

/// So many rounds at one time, and the loop does not come to its sleep.
const MAX_ITERATIONS: usize = 1000;
/// Between two parts.
const PAUSE_US: i64 = 1_000;
/// Above every time in which something is kept for those who have left.
const LONG_US: i64 = 60_000_000;

/// Feeds a new server.
///
/// # Panics
/// If the module does what it must not, or if something is left when all have gone.
pub fn feed(parts: &[Part<'_>]) {
    Node::forget_all();
    // The kinds differ in when clients are answered; that is for the histories.
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

/// Lets the loop turn until nothing is to be done at this time.
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
