//! The module in a simulated server: the same core, commands and host, linked unchanged.

#![cfg(feature = "simulated")]

use redis_lock::host::Locks;
use redis_lock::server::{Node, Reply};

const ALICE: i64 = 1;
const BOB: i64 = 2;

fn one() -> Node<Locks> {
    Node::new_ones(1).pop().expect("a node")
}

fn told(client: i64, value: i64) -> Vec<(i64, Reply)> {
    vec![(client, Reply::Integer(value))]
}

#[test]
fn a_release_serves_the_next_in_the_same_round() {
    let node = one();
    assert_eq!(node.run(ALICE, "LOCK.ACQUIRE door alice"), told(ALICE, 1));
    assert_eq!(node.run(BOB, "LOCK.ACQUIRE door bob PX 500 BLOCK 0"), []);
    node.replicated();
    let replies = node.run(ALICE, "LOCK.RELEASE door alice");
    assert_eq!(replies, [told(ALICE, 0), told(BOB, 1)].concat());
    assert_eq!(node.replicated(), ["SET door bob PXAT 1000000000500"]);
}

#[test]
fn the_end_of_a_lease_serves_the_next_one_millisecond_after_its_last() {
    let node = one();
    assert_eq!(node.run(ALICE, "LOCK.REENTER door alice PX 20"), told(ALICE, 1));
    assert_eq!(node.run(BOB, "LOCK.REENTER door bob BLOCK 0"), []);
    assert_eq!(node.pass(20), []);
    assert_eq!(node.pass(1), told(BOB, 1));
}

#[test]
fn a_wait_ends_with_nil_on_time() {
    let node = one();
    assert_eq!(node.run(ALICE, "LOCK.ACQUIRE door alice"), told(ALICE, 1));
    assert_eq!(node.run(BOB, "LOCK.ACQUIRE door bob BLOCK 30"), []);
    assert_eq!(node.pass(30), []);
    assert_eq!(node.pass(1), [(BOB, Reply::Nil)]);
}

#[test]
fn a_foreign_delete_serves_the_next() {
    let node = one();
    assert_eq!(node.run(ALICE, "LOCK.ACQUIRE door alice"), told(ALICE, 1));
    assert_eq!(node.run(BOB, "LOCK.ACQUIRE door bob BLOCK 0"), []);
    assert_eq!(node.run(ALICE, "DEL door"), told(BOB, 1));
}

#[test]
fn each_node_has_a_state_of_its_own() {
    let nodes = Node::<Locks>::new_ones(2);
    assert_eq!(nodes[0].run(ALICE, "LOCK.ACQUIRE door alice"), told(ALICE, 1));
    assert_eq!(nodes[0].run(BOB, "LOCK.ACQUIRE door bob BLOCK 0"), []);
    assert_eq!(nodes[1].run(BOB, "LOCK.ACQUIRE door bob"), told(BOB, 1));
    assert_eq!(nodes[1].run(BOB, "LOCK.RELEASE door bob"), told(BOB, 0));
    assert_eq!(nodes[0].run(ALICE, "LOCK.RELEASE door alice"), [told(ALICE, 0), told(BOB, 1)].concat());
}

#[test]
fn settings_are_set_within_their_range() {
    let node = one();
    assert_eq!(node.run(ALICE, "CONFIG SET lock.max-waiters 0"), [(ALICE, Reply::Bytes(b"OK".to_vec()))]);
    assert_eq!(node.run(ALICE, "LOCK.ACQUIRE door alice"), told(ALICE, 1));
    let [(BOB, Reply::Error(refused))] = &node.run(BOB, "LOCK.ACQUIRE door bob BLOCK 0")[..] else {
        panic!("an error")
    };
    assert!(refused.starts_with("QUEUEFULL"), "{refused}");
    let [(ALICE, Reply::Error(_))] = &node.run(ALICE, "CONFIG SET lock.max-waiters -1")[..] else { panic!("an error") };
}
