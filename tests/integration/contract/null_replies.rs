//! The bytes of nil, and a node without slots.

use support::{Protocol, Server};

#[test]
fn nil_is_null_bulk_string_in_resp2_and_null_in_resp3() {
    let server = Server::start();
    assert_eq!(server.client().run("LOCK.ACQUIRE door alice"), 1);
    for (protocol, nil) in [(Protocol::Resp2, "$-1\r\n"), (Protocol::Resp3, "_\r\n")] {
        for line in ["LOCK.ACQUIRE door bob", "LOCK.REENTER door bob"] {
            for options in ["", " BLOCK 10"] {
                assert_eq!(server.on_the_wire(protocol, &format!("{line}{options}")), nil, "{protocol:?} {line}");
            }
        }
    }
    assert_eq!(server.on_the_wire(Protocol::Resp3, "LOCK.RELEASE door alice"), ":0\r\n");
}

#[test]
fn node_without_slots_lists_its_queues() {
    let node = support::one_node::without_slots(&support::Setup::new());
    assert_eq!(node.client().run("LOCK.QUEUES"), support::Reply::List(vec![]), "it names no other node");
}
