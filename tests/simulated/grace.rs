//! The grace periods of sessions: what is written when the last connection has closed, and when.

use redis_lock::server::{Node, Value, WriteFence};

use super::clients::{Stage, on_every_kind, received};

const TAKE: [&str; 3] = ["ACQUIRE", "REENTER", "SHARE"];

/// While the previous master may grant the lock when its lease ends there, the lease is only cut short.
#[test]
fn grace_period_lengthens_no_lease_while_old_master_may_grant() {
    for (passed_ms, is_cut) in [(100, true), (700, false)] {
        on_every_kind(|stage, alice, bob| {
            for take in TAKE {
                let holder = stage.0.connect();
                let line = format!("LOCK.{take} door alice PX 1000 SESSION GRACE 500");
                assert_eq!(stage.run(holder, &line), received(holder, 1));
                stage.run(alice, "CONFIG SET lock.max-lease-ms 1000");
                stage.run(alice, "CONFIG SET lock.recovery-ms 60000");
                stage.pass(passed_ms);
                stage.stream();
                stage.0.hang_up(holder);
                stage.pass(1);
                assert_eq!(!stage.stream().is_empty(), is_cut, "{take} after {passed_ms} ms");
                assert_eq!(stage.info("sessions"), 0);
                // It ends in time in either case.
                stage.run(alice, "CONFIG SET lock.recovery-ms 0");
                stage.pass(if is_cut { 520 } else { 320 });
                assert_eq!(
                    stage.run(bob, "LOCK.ACQUIRE door bob PX 9"),
                    received(bob, 1),
                    "{take} after {passed_ms} ms"
                );
                assert_eq!(stage.run(bob, "LOCK.RELEASE door bob"), received(bob, 0));
                stage.run(alice, "CONFIG SET lock.max-lease-ms 0");
            }
        });
    }
}

/// Writes are refused at the close, and accepted again before or after the end of the grace period.
#[test]
fn refused_write_is_made_up_for() {
    for (refused_ms, is_released) in [(300, false), (900, true)] {
        on_every_kind(|stage, _, bob| {
            for take in TAKE {
                let holder = stage.0.connect();
                let line = format!("LOCK.{take} door alice PX 60000 SESSION GRACE 600");
                assert_eq!(stage.run(holder, &line), received(holder, 1));
                stage.stream();
                stage.0.set_fence(Some(WriteFence::NoReplicas));
                stage.0.hang_up(holder);
                stage.pass(refused_ms);
                assert_eq!(stage.stream(), [""; 0]);
                stage.0.set_fence(None);
                stage.pass(100);
                let written = stage.stream();
                assert_eq!(
                    written.iter().any(|line| line.starts_with("DEL ") || line.starts_with("ZREM ")),
                    is_released,
                    "{take}: {written:?}"
                );
                assert_eq!(
                    written.iter().any(|line| line.starts_with("PEXPIREAT ")),
                    !is_released,
                    "{take}: {written:?}"
                );
                stage.pass(210);
                assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob"), received(bob, 1), "{take}: 600 ms after the close");
                assert_eq!(stage.run(bob, "LOCK.RELEASE door bob"), received(bob, 0));
            }
        });
    }
}

/// The server's clock is set back between the closes of two connections. The later close counts.
#[test]
fn clock_that_is_set_back_lengthens_no_grace_period() {
    on_every_kind(|stage, _, bob| {
        let (one, other) = (stage.0.connect(), stage.0.connect());
        for client in [one, other] {
            let line = "LOCK.ACQUIRE door alice PX 60000 SESSION GRACE 300";
            assert_eq!(stage.run(client, line), received(client, 1));
        }
        stage.0.hang_up(one);
        stage.pass(10);
        stage.0.step_clock(-5000);
        stage.0.hang_up(other);
        stage.pass(320);
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob"), received(bob, 1));
    });
}

/// Returns the end of the lease of `alice`, who is to hold the door with this number of holds, or `None` if she does not.
fn lease_end(stage: &Stage, holds: &[u8]) -> Option<i64> {
    let keyspace = stage.0.keyspace();
    let entry = keyspace.get(0, b"door").filter(|entry| !entry.is_over(stage.0.now_ms()))?;
    let is_held = match &entry.value {
        Value::String(token) => **token == *b"alice",
        Value::Hash(fields) => fields.get(b"alice".as_slice()).is_some_and(|held| **held == *holds),
        _ => false,
    };
    entry.expiry.filter(|_| is_held)
}

/// The lease ends before the server can process the close: it stands still, or refuses writes. The lock is returned for the rest of
/// the grace period, and no waiter overtakes
#[test]
fn lock_whose_lease_has_ended_is_returned_for_the_rest() {
    for is_refused in [false, true] {
        on_every_kind(|stage, _, bob| {
            for take in ["ACQUIRE", "REENTER"] {
                let holder = stage.0.connect();
                let line = format!("LOCK.{take} door alice PX 500 SESSION GRACE 450");
                assert_eq!(stage.run(holder, &line), received(holder, 1));
                if take == "REENTER" {
                    assert_eq!(stage.run(holder, "LOCK.REENTER door alice"), received(holder, 2));
                }
                stage.send(bob, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
                stage.turn();
                let closed_at = if is_refused {
                    stage.0.set_fence(Some(WriteFence::NoReplicas));
                    stage.pass(300);
                    stage.0.hang_up(holder);
                    stage.turn();
                    let closed_at = stage.0.now_ms();
                    assert_eq!(stage.pass(300), [], "{take}");
                    stage.0.set_fence(None);
                    assert_eq!(stage.pass(90), [], "{take}");
                    closed_at
                } else {
                    Node::pass_us(700_000);
                    stage.0.hang_up(holder);
                    assert_eq!(stage.turn(), [], "{take}");
                    stage.0.now_ms()
                };
                assert_eq!(lease_end(&stage, b"2"), Some(closed_at + 450), "{take}, refused: {is_refused}");
                assert_eq!(stage.info("sessions"), 0);
                let replies = stage.pass(closed_at + 450 + 5 - stage.0.now_ms());
                assert_eq!(replies, received(bob, 1), "{take}, refused: {is_refused}");
                assert_eq!(stage.run(bob, "LOCK.RELEASE door bob"), received(bob, 0));
            }
        });
    }
}

/// Another holder, or a write by somebody else, is not replaced.
#[test]
fn lock_that_somebody_has_taken_is_not_returned() {
    on_every_kind(|stage, alice, _| {
        for write in ["SET door eve", "HSET door eve 1", "ZADD door inf eve", "ZADD door 0.5 eve", "LPUSH door eve"] {
            let holder = stage.0.connect();
            assert_eq!(stage.run(holder, "LOCK.ACQUIRE door alice PX 500 SESSION GRACE 450"), received(holder, 1));
            stage.0.set_fence(Some(WriteFence::NoReplicas));
            stage.pass(300);
            stage.0.hang_up(holder);
            stage.pass(300);
            stage.0.set_fence(None);
            stage.run(alice, write);
            stage.stream();
            stage.pass(100);
            assert_eq!(stage.stream(), [""; 0], "{write}");
            stage.run(alice, "DEL door");
        }
    });
}

#[test]
fn lowered_limit_of_leases_cuts_the_grace_period() {
    on_every_kind(|stage, alice, _| {
        let holder = stage.0.connect();
        assert_eq!(stage.run(holder, "LOCK.ACQUIRE door alice PX 60000 SESSION GRACE 50000"), received(holder, 1));
        stage.run(alice, "CONFIG SET lock.max-lease-ms 700");
        stage.0.hang_up(holder);
        stage.turn();
        assert_eq!(lease_end(&stage, b""), Some(stage.0.now_ms() + 700));
    });
}
