//! Grants of shares, and external commands that change the shares of a lock with waiters.

use redis_lock::server::Reply;

use super::clients::{on_every_kind, received};

/// An external command has replaced the lock by shares. One of them is removed, so another share is the last that ends.
#[test]
fn exclusive_waiter_is_granted_after_external_shares() {
    on_every_kind(|stage, alice, bob| {
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob BLOCK 0"), []);
        let [early, late] = [100, 1000].map(|ms| stage.0.now_ms() + ms);
        stage.send(alice, "DEL door");
        stage.send(alice, &format!("ZADD door {early} early"));
        stage.send(alice, &format!("ZADD door {late} late"));
        stage.run(alice, &format!("PEXPIREAT door {late}"));
        assert_eq!(stage.run(alice, "ZREM door late"), received(alice, 1));
        assert_eq!(stage.pass(100), []);
        assert_eq!(stage.pass(1), received(bob, 1));
    });
}

#[test]
fn externally_removed_share_frees_capacity() {
    on_every_kind(|stage, alice, bob| {
        let [carol, dave] = [(); 2].map(|()| stage.0.connect());
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
        for (client, name) in [(bob, "bob"), (carol, "carol"), (dave, "dave")] {
            assert_eq!(stage.run(client, &format!("LOCK.SHARE door {name} LIMIT 2 BLOCK 0")), []);
        }
        assert_eq!(stage.run(alice, "LOCK.RELEASE door alice").len(), 3);
        assert_eq!(stage.run(alice, "ZREM door bob"), [received(alice, 1), received(dave, 1)].concat());
    });
}

#[test]
fn removed_last_share_frees_lock_when_others_end() {
    on_every_kind(|stage, alice, bob| {
        let carol = stage.0.connect();
        assert_eq!(stage.run(alice, "LOCK.SHARE door alice PX 1000"), received(alice, 1));
        assert_eq!(stage.run(carol, "LOCK.SHARE door carol PX 100"), received(carol, 1));
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob BLOCK 0"), []);
        assert_eq!(stage.run(alice, "ZREM door alice"), received(alice, 1));
        assert_eq!(stage.pass(100), []);
        assert_eq!(stage.pass(1), received(bob, 1));
    });
}

/// There are more waiters than one batch grants.
#[test]
fn all_waiting_shares_are_granted() {
    on_every_kind(|stage, alice, _| {
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
        for number in 0..250 {
            assert_eq!(stage.run(stage.0.connect(), &format!("LOCK.SHARE door {number} PX 60000 BLOCK 0")), []);
        }
        assert_eq!(stage.run(alice, "LOCK.RELEASE door alice").len(), 251);
    });
}

#[test]
fn scores_that_are_not_lease_ends_are_wrong_type() {
    on_every_kind(|stage, alice, bob| {
        let later = stage.0.now_ms() + 1000;
        for scores in [["0.5", "inf"], ["1", "9007199254740994"], ["1", "2"]] {
            for (score, member) in scores.into_iter().zip(["one", "other"]) {
                stage.run(alice, &format!("ZADD door {score} {member}"));
            }
            if scores[1] != "inf" {
                stage.run(alice, &format!("PEXPIREAT door {later}"));
            }
            let replies = stage.run(bob, "LOCK.SHARE door bob");
            let is_refused = matches!(&replies[..], [(_, Reply::Error(error))] if error.starts_with("WRONGTYPE"));
            assert!(is_refused, "{scores:?}: {replies:?}");
            assert_eq!(stage.run(alice, "DEL door"), received(alice, 1));
        }
    });
}

#[test]
fn many_expired_members_delay_one_request() {
    on_every_kind(|stage, alice, bob| {
        stage.send(alice, "ZADD door inf alice");
        (0..1100).for_each(|number| stage.send(alice, &format!("ZADD door 1 passed{number}")));
        stage.turn();
        let ask = "LOCK.SHARE door bob LIMIT 2";
        assert_eq!(stage.run(bob, ask), [(bob, Reply::Nil)], "there are more expired members than a request counts");
        assert_eq!(stage.run(bob, ask), received(bob, 1), "some were removed");
        assert_eq!(stage.run(alice, "DEL door"), received(alice, 1));
        assert_eq!(stage.left(), 0);
    });
}

#[test]
fn refused_request_removes_no_expired_member() {
    on_every_kind(|stage, alice, bob| {
        stage.run(alice, "ZADD door inf alice");
        stage.run(alice, "ZADD door 1 passed");
        stage.stream();
        assert_eq!(stage.run(bob, "LOCK.SHARE door bob LIMIT 1"), [(bob, Reply::Nil)]);
        assert_eq!(stage.stream(), [""; 0]);
    });
}
