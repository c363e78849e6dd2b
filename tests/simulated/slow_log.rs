//! LOCK.SLOWLOG and a clock that is set back, and a restart.

use redis_lock::server::{Node, Reply, ServerKind};

use super::clients::{Stage, received};

/// Returns a server with one logged wait, which `change` has changed before the wait ended, and the log.
#[track_caller]
fn logged_after(change: impl Fn(&Stage)) -> (Stage, Vec<Reply>) {
    let stage = Stage::on(ServerKind::Redis8);
    let (alice, bob) = (stage.0.connect(), stage.0.connect());
    stage.run(alice, "CONFIG SET lock.slowlog-ms 0");
    assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice PX 1000"), received(alice, 1));
    stage.run(bob, "LOCK.ACQUIRE door bob BLOCK 0");
    change(&stage);
    stage.run(alice, "LOCK.RELEASE door alice");
    let entries = log(&stage);
    (stage, entries)
}

#[track_caller]
fn log(stage: &Stage) -> Vec<Reply> {
    let client = stage.0.connect();
    let replies = stage.run(client, "LOCK.SLOWLOG GET -1");
    let [(_, Reply::Array(entries))] = &replies[..] else { panic!("a list: {replies:?}") };
    entries.clone()
}

#[test]
fn clock_set_back_logs_no_negative_wait() {
    let (_stage, entries) = logged_after(|stage| stage.0.step_clock(-500));
    let [Reply::Array(fields)] = &entries[..] else { panic!("one entry: {entries:?}") };
    assert_eq!(fields[2], Reply::Integer(0));
}

#[test]
fn restarted_server_has_empty_log() {
    let (stage, entries) = logged_after(|_| {});
    assert_eq!(entries.len(), 1);
    stage.0.restart(stage.0.keyspace());
    Node::pass_us(1000);
    assert_eq!(log(&stage), []);
}
