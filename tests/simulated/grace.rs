//! The grace periods of sessions: what is written when the last connection has closed, and when.

use redis_lock::server::WriteFence;

use super::clients::{on_every_kind, received};

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
