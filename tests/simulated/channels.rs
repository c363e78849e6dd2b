//! Messages in the event log of the simulated server.

use redis_lock::server::{ClientId, LoggedEvent, Node, Reply, ServerKind};

use super::witness::Witness;

/// A server with a subscriber to the channel `news`, which speaks RESP3.
fn with_subscriber(kind: ServerKind) -> (Node, ClientId) {
    Node::forget_all();
    let node = Node::new::<Witness>(kind);
    let client = node.connect();
    send(node, client, &["HELLO 3", "SSUBSCRIBE news"]);
    node.turn();
    node.event_log();
    (node, client)
}

fn send(node: Node, client: ClientId, lines: &[&str]) {
    for line in lines {
        node.send(client, 0, line.split(' ').map(|word| word.as_bytes().to_vec()).collect());
    }
}

/// Returns the events of messages and replies.
fn notes(node: Node) -> Vec<LoggedEvent> {
    let is_wanted = |note: &LoggedEvent| {
        matches!(
            note,
            LoggedEvent::Published { .. }
                | LoggedEvent::Pushed { .. }
                | LoggedEvent::PushSent { .. }
                | LoggedEvent::Replied { .. }
        )
    };
    node.event_log().into_iter().filter(is_wanted).collect()
}

fn published(reached: usize) -> LoggedEvent {
    LoggedEvent::Published { channel: b"news".as_slice().into(), message: b"hello".as_slice().into(), reached }
}

fn pushed(client: ClientId) -> LoggedEvent {
    let words = ["smessage", "news", "hello"].map(|word| Reply::Bytes(word.as_bytes().to_vec()));
    LoggedEvent::Pushed { client, message: Reply::Push(words.to_vec()) }
}

fn replied(client: ClientId, reply: &str) -> LoggedEvent {
    LoggedEvent::Replied { client, tag: 0, reply: Reply::Bytes(reply.as_bytes().to_vec()) }
}

#[test]
fn message_is_logged_when_published_pushed_and_sent() {
    for kind in ServerKind::ALL {
        let (node, client) = with_subscriber(kind);
        let other = node.connect();
        send(node, other, &["WITNESS.PUBLISH news hello"]);
        node.turn();
        assert_eq!(notes(node), [published(1), pushed(client), replied(other, "1"), LoggedEvent::PushSent { client }]);
    }
}

#[test]
fn own_message_follows_reply_except_on_redis_7_0() {
    for kind in ServerKind::ALL {
        let (node, client) = with_subscriber(kind);
        send(node, client, &["WITNESS.PUBLISH news hello"]);
        node.turn();
        let (message, reply) = (pushed(client), replied(client, "1"));
        let [first, second] = if kind == ServerKind::Redis70 { [message, reply] } else { [reply, message] };
        assert_eq!(notes(node), [published(1), first, second, LoggedEvent::PushSent { client }]);
    }
}

#[test]
fn closed_subscriber_is_counted_but_receives_nothing() {
    for kind in ServerKind::ALL {
        let (node, client) = with_subscriber(kind);
        let other = node.connect();
        send(node, other, &["WITNESS.PUBLISH news hello", "WITNESS.LATER 0 PUBLISH news hello"]);
        node.hang_up(client);
        node.turn();
        let expected = [published(1), pushed(client), replied(other, "1"), replied(other, "done"), published(0)];
        assert_eq!(notes(node), expected);
    }
}

#[test]
#[should_panic(expected = "a message in the middle of a reply")]
fn message_in_own_exec_ends_redis_7_0() {
    let (node, client) = with_subscriber(ServerKind::Redis70);
    send(node, client, &["MULTI", "WITNESS.PUBLISH news hello", "EXEC"]);
    node.turn();
}

#[test]
#[should_panic(expected = "a message in the middle of a reply")]
fn message_in_event_of_own_command_ends_redis_7_0() {
    let (node, client) = with_subscriber(ServerKind::Redis70);
    send(node, client, &["WITNESS.LISTEN", "WITNESS.REPORT news", "SET door x", "DEL door"]);
    node.turn();
}

#[test]
fn message_to_others_in_exec_works_on_redis_7_0() {
    let (node, client) = with_subscriber(ServerKind::Redis70);
    let other = node.connect();
    send(node, other, &["MULTI", "WITNESS.PUBLISH news hello", "EXEC"]);
    node.turn();
    let notes = notes(node);
    assert!(notes.contains(&pushed(client)) && notes.contains(&LoggedEvent::PushSent { client }), "{notes:?}");
}
