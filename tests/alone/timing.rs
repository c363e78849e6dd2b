//! How late the ends of waits and leases are, to about a millisecond. Each figure is the median of many rounds, and the best of a
//! few batches, so that a busy machine does not fail the test. A module that waits for the server's own clock tick is tens of
//! milliseconds late in every batch.

use std::time::Instant;

use support::{Reply, Server, Way, eventually, now_us};

use super::alone;

const BATCHES: usize = 4;
const ROUNDS: u64 = 20;

/// Runs batches of a round that returns how late it is, until one batch has a median within `limit_us`. No round may be early by
/// more than `early_us`.
#[track_caller]
fn is_punctual(what: &str, early_us: i64, limit_us: i64, mut round: impl FnMut(u64) -> i64) {
    let mut medians = Vec::new();
    for _ in 0..BATCHES {
        let mut late: Vec<i64> = (0..ROUNDS).map(&mut round).collect();
        late.sort_unstable();
        assert!(late[0] >= -early_us, "{what}: {} us late, which is early", late[0]);
        medians.push(late[late.len() / 2]);
        if medians.last().is_some_and(|median| *median <= limit_us) {
            return;
        }
    }
    panic!("{what}: medians of {medians:?} us late in {BATCHES} batches, allowed are {limit_us}");
}

fn since_us(begin: Instant) -> i64 {
    i64::try_from(begin.elapsed().as_micros()).expect("a short time")
}

#[test]
fn wait_ends_on_time_and_never_early() {
    let _alone = alone();
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.ACQUIRE door holder"), 1);
    assert_eq!(client.run("LOCK.ACQUIRE gate holder PX 60000"), 1);
    for line in ["LOCK.ACQUIRE door", "LOCK.REENTER gate"] {
        // The server counts in whole milliseconds, so a wait may look short by less than one.
        is_punctual(line, 1000, 2000, |round| {
            let block_ms = 11 + i64::try_from(round % 13).expect("a small number");
            let begin = Instant::now();
            assert_eq!(client.run(&format!("{line} other BLOCK {block_ms}")), Reply::Nil);
            since_us(begin) - block_ms * 1000
        });
    }
}

#[test]
fn lease_end_grants_to_next_within_two_milliseconds() {
    let _alone = alone();
    let server = Server::start();
    let mut client = server.client();
    let others = "for i = 1, 100000 do redis.call('SET', 'other:' .. i, 'x', 'PX', 3600000 + i) end return 1";
    assert_eq!(client.call(&["EVAL", others, "0"]), 1);
    for (take, way) in [("LOCK.ACQUIRE", Way::Blocked), ("LOCK.REENTER", Way::Notified)] {
        is_punctual(take, 0, 2000, |round| {
            assert_eq!(client.run(&format!("{take} door holder PX {}", 15 + round % 11)), 1);
            let end_ms = client.expires_at("door");
            let mut waiter = way.send(&server, &format!("{take} door waiter BLOCK 0"));
            assert_eq!(waiter.reply(), 1);
            let late = now_us() - end_ms * 1000;
            assert_eq!(client.run("LOCK.RELEASE door waiter"), 0);
            late
        });
    }
}

/// Pipelined behind the end of another wait, where Redis 7.0 has already decided how long to sleep.
#[test]
fn wait_that_begins_before_server_sleeps_ends_on_time() {
    let _alone = alone();
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.ACQUIRE door holder"), 1);
    is_punctual("behind BLPOP", 1000, 3000, |_| {
        let mut client = server.client();
        client.send_together(&["BLPOP list 0", "LOCK.ACQUIRE door other BLOCK 20"]);
        eventually("BLPOP waits", || control.info("clients", "blocked_clients").as_deref() == Some("1"));
        let begin = Instant::now();
        assert_eq!(control.run("RPUSH list x"), 1);
        assert_eq!(client.receive().items().len(), 2);
        assert_eq!(client.receive(), Reply::Nil);
        since_us(begin) - 20_000
    });
}
