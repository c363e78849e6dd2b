//! Who is let in beside shares, and what others do to shares while somebody waits for the lock.

use redis_lock::server::Reply;

use super::clients::{on_every_kind, received};

/// Others have put shares in the place of the lock. One of them goes, so another is the last that ends.
#[test]
fn shares_that_come_under_who_waits_for_the_lock_alone_are_watched() {
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
fn a_share_that_others_remove_makes_room_at_once() {
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
fn the_last_share_that_others_remove_leaves_the_lock_free_when_the_others_end() {
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

/// There are more of them than are granted in one step.
#[test]
fn all_in_a_row_of_shares_are_let_in() {
    on_every_kind(|stage, alice, _| {
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
        for number in 0..250 {
            assert_eq!(stage.run(stage.0.connect(), &format!("LOCK.SHARE door {number} PX 60000 BLOCK 0")), []);
        }
        assert_eq!(stage.run(alice, "LOCK.RELEASE door alice").len(), 251);
    });
}

#[test]
fn scores_that_are_no_ends_of_leases_are_data_of_others() {
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
fn very_many_whose_time_has_passed_keep_nobody_out_for_long() {
    on_every_kind(|stage, alice, bob| {
        stage.send(alice, "ZADD door inf alice");
        (0..1100).for_each(|number| stage.send(alice, &format!("ZADD door 1 passed{number}")));
        stage.turn();
        let ask = "LOCK.SHARE door bob LIMIT 2";
        assert_eq!(stage.run(bob, ask), [(bob, Reply::Nil)], "they are more than are told from those that hold");
        assert_eq!(stage.run(bob, ask), received(bob, 1), "some were removed");
        assert_eq!(stage.run(alice, "DEL door"), received(alice, 1));
        assert_eq!(stage.left(), 0);
    });
}

#[test]
fn a_request_in_vain_removes_no_few_whose_time_has_passed() {
    on_every_kind(|stage, alice, bob| {
        stage.run(alice, "ZADD door inf alice");
        stage.run(alice, "ZADD door 1 passed");
        stage.stream();
        assert_eq!(stage.run(bob, "LOCK.SHARE door bob LIMIT 1"), [(bob, Reply::Nil)]);
        assert_eq!(stage.stream(), [""; 0]);
    });
}
