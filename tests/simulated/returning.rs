//! The shares of one lock that are given back to very many sessions, so many at a time: nobody is let in meanwhile, and whoever
//! asks for a share of theirs has it.

use redis_lock::server::{Node, Reply, WriteFence};

use super::crowd::Stage;

const SHARES: usize = 250;

/// How many are given back in one step.
const AT_ONCE: usize = redis_lock::core::MAX_SHARE_BATCH;

/// One connection has a session of each share of the door, of which there are no more. Bob waits for another, and the leases
/// of all have ended while the server stood still. It has gone on for one round.
fn after_first_iteration() -> Stage {
    let stage = Stage::start();
    stage.each(stage.asker, SHARES, |number| format!("LOCK.SHARE door a{number:04} LIMIT {SHARES} PX 10000 SESSION"));
    let bob = format!("LOCK.SHARE door bob LIMIT {SHARES} PX 60000 BLOCK 0 NOTIFY news");
    stage.run(stage.alice, &bob);
    Node::pass_us(20_000_000);
    for _ in 0..200 {
        // For a second the server waits for those who may be back.
        Node::pass_us(10_000);
        stage.node.turn();
        if stage.shares("door").len() == AT_ONCE {
            return stage;
        }
    }
    panic!("{} shares", stage.shares("door").len());
}

fn has(stage: &Stage, token: &str) -> bool {
    stage.shares("door").iter().any(|other| other == token)
}

#[test]
fn all_are_given_back_before_anybody_else_is_let_in() {
    let stage = after_first_iteration();
    for rounds in 1.. {
        assert!(rounds < 10 && stage.shares("door").len() >= (rounds * AT_ONCE).min(SHARES) && !has(&stage, "bob"));
        if stage.shares("door").len() == SHARES {
            break;
        }
        stage.node.turn();
    }
    stage.settle();
    assert_eq!((stage.count("sessions"), stage.waiters()), (SHARES as u64, 1));
    stage.run(stage.asker, "LOCK.RELEASE door a0007");
    assert!(has(&stage, "bob"));
    stage.pass(30_000);
    assert_eq!(stage.shares("door").len(), SHARES, "each is renewed");
}

#[test]
fn whoever_asks_in_between_has_the_share() {
    let stage = after_first_iteration();
    assert!(!has(&stage, "a0240"));
    assert_eq!(stage.ask(stage.asker, "LOCK.EXTEND door a0240 PX 30000"), Reply::Integer(30000));
    let stage = after_first_iteration();
    assert_eq!(stage.ask(stage.asker, "LOCK.SHARE door a0240 LIMIT 1 PX 10000 SESSION"), Reply::Integer(1));
    let stage = after_first_iteration();
    assert_eq!(stage.ask(stage.asker, "LOCK.RELEASE door a0240"), Reply::Integer(0));
    stage.settle();
    assert!(has(&stage, "bob") && !has(&stage, "a0240"));
    assert_eq!((stage.shares("door").len(), stage.count("sessions")), (SHARES, SHARES as u64 - 1));
}

#[test]
fn nobody_who_does_not_wait_comes_in_between() {
    let stage = after_first_iteration();
    let asked = stage.ask(stage.alice, &format!("LOCK.SHARE door carol LIMIT {SHARES} PX 60000"));
    assert_eq!(asked, Reply::Nil);
    assert_eq!(stage.ask(stage.alice, "LOCK.ACQUIRE door carol PX 60000"), Reply::Nil);
}

#[test]
fn those_that_were_given_back_first_may_all_go_before_the_others_are() {
    let stage = after_first_iteration();
    stage.node.set_fence(Some(WriteFence::NoReplicas));
    for token in stage.shares("door") {
        stage.send(stage.asker, &format!("LOCK.RELEASE door {token}"));
    }
    stage.node.set_fence(None);
    stage.settle();
    assert!(has(&stage, "bob"));
    assert_eq!(stage.shares("door").len(), SHARES - AT_ONCE + 1);
}

#[test]
fn while_nothing_may_be_written_nobody_is_let_in_and_then_it_goes_on() {
    let stage = after_first_iteration();
    stage.node.set_fence(Some(WriteFence::NoReplicas));
    stage.pass(200);
    assert!(stage.shares("door").len() <= 2 * AT_ONCE);
    stage.node.set_fence(None);
    stage.pass(200);
    assert!(!has(&stage, "bob"));
    assert_eq!((stage.shares("door").len(), stage.count("sessions")), (SHARES, SHARES as u64));
}

#[test]
fn the_connection_closes_in_between() {
    let stage = after_first_iteration();
    stage.node.hang_up(stage.asker);
    stage.settle();
    assert_eq!((stage.shares("door"), stage.count("sessions")), (vec!["bob".to_owned()], 0));
}

#[test]
fn others_delete_the_lock_in_between() {
    let stage = after_first_iteration();
    stage.run(stage.alice, "DEL door");
    assert_eq!((stage.shares("door"), stage.count("sessions")), (vec!["bob".to_owned()], 0));
}

#[test]
fn others_remove_a_share_in_between() {
    let stage = after_first_iteration();
    let gone = stage.shares("door").remove(0);
    stage.run(stage.alice, &format!("ZREM door {gone}"));
    stage.settle();
    assert!(has(&stage, "bob") && !has(&stage, &gone));
    assert_eq!((stage.shares("door").len(), stage.count("sessions")), (SHARES, SHARES as u64 - 1));
}

#[test]
fn the_server_stands_still_again_in_between() {
    let stage = after_first_iteration();
    Node::pass_us(20_000_000);
    stage.pass(2000);
    assert!(!has(&stage, "bob"));
    assert_eq!((stage.shares("door").len(), stage.count("sessions")), (SHARES, SHARES as u64));
}

#[test]
fn whoever_asks_while_grants_are_held_back_has_it_later() {
    let stage = after_first_iteration();
    stage.send(stage.alice, "CONFIG SET lock.recovery-ms 60000");
    stage.ask(stage.asker, "LOCK.EXTEND door a0240 PX 30000");
    assert!(!has(&stage, "a0240"));
}

#[test]
fn a_share_whose_time_has_passed_holds_up_nobody_beside_sessions() {
    let stage = Stage::start();
    stage.each(stage.asker, SHARES, |number| format!("LOCK.SHARE door a{number:04} LIMIT 300 PX 60000 SESSION"));
    stage.run(stage.alice, "ZADD door 1 passed");
    stage.send(stage.alice, "LOCK.SHARE door bob LIMIT 300 PX 60000");
    assert_eq!(stage.ask(stage.asker, "LOCK.SHARE door carol LIMIT 300 PX 60000"), Reply::Integer(1));
}

#[test]
fn the_server_becomes_a_replica_in_between() {
    let stage = after_first_iteration();
    stage.node.become_replica();
    stage.settle();
    assert_eq!((stage.count("sessions"), stage.waiters()), (0, 0));
}
