//! Shares whose leases end in a transaction. The server's cached time does not advance in it, so the key exists until its end.

use redis_lock::server::Reply;

use super::clients::{Stage, on_every_kind, received};

/// Runs a transaction that has lasted for 200 ms before the first of these lines. Returns the replies to the lines.
fn transact<const N: usize>(stage: &Stage, client: i64, lines: [&str; N]) -> Vec<Reply> {
    let lines = ["MULTI", "DEBUG SLEEP 0.2"].into_iter().chain(lines).chain(["EXEC"]);
    lines.for_each(|line| stage.send(client, line));
    let mut ours = stage.turn().into_iter().filter_map(|(to, reply)| (to == client).then_some(reply));
    match ours.next_back() {
        Some(Reply::Array(replies)) => replies[1..].to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Returns the members of the reply to `ZRANGE door 0 -1`, in the order of their scores.
fn members(replied: &Reply) -> Vec<String> {
    let Reply::Array(pairs) = replied else { panic!("{replied:?}") };
    let text = |member: &Reply| match member {
        Reply::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?}"),
    };
    pairs.iter().step_by(2).map(text).collect()
}

#[test]
fn session_keeps_share_in_transaction() {
    on_every_kind(|stage, alice, bob| {
        assert_eq!(stage.run(alice, "LOCK.SHARE door alice LIMIT 2 PX 100 SESSION"), received(alice, 1));
        let lines = ["LOCK.SHARE door bob LIMIT 2 PX 1000", "LOCK.SHARE door carol LIMIT 2 PX 1000"];
        assert_eq!(transact(&stage, bob, lines), [Reply::Integer(1), Reply::Nil]);
        stage.pass(500);
        assert_eq!(stage.run(alice, "LOCK.RELEASE door alice"), received(alice, 0));
    });
}

#[test]
fn release_of_expired_share_keeps_session_share() {
    on_every_kind(|stage, alice, bob| {
        assert_eq!(stage.run(alice, "LOCK.SHARE door alice PX 100 SESSION"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.SHARE door bob PX 100"), received(bob, 1));
        // Its lease has ended. The share of the session has been returned, so the lock is held.
        let refused = Reply::Error("NOTOWNER Somebody else holds this lock".to_owned());
        assert_eq!(transact(&stage, bob, ["LOCK.RELEASE door bob"]), [refused]);
        stage.pass(500);
        assert_eq!(stage.run(alice, "LOCK.RELEASE door alice"), received(alice, 0));
    });
}

#[test]
fn expired_shares_are_removed_after_transaction() {
    on_every_kind(|stage, alice, bob| {
        stage.run(alice, "LOCK.SHARE door one PX 20");
        stage.run(alice, "LOCK.SHARE door other PX 30");
        let replies = transact(&stage, bob, ["LOCK.SHARE door bob PX 1000", "ZRANGE door 0 -1"]);
        assert_eq!(replies[0], Reply::Integer(1));
        assert_eq!(members(&replies[1]), ["one", "other", "bob"]);
        assert_eq!(stage.run(alice, "LOCK.SHARE door alice PX 2000"), received(alice, 1));
        let (_, left) = stage.run(bob, "ZRANGE door 0 -1").remove(0);
        assert_eq!(members(&left), ["bob", "alice"]);
    });
}
