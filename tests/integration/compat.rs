//! `lock.wake-foreign` with services that use these commands and services that use another library, for the same locks.
//! tests/scenarios/compat has what is sent and replied.

use std::thread;

use support::python::run_script;
use support::{Client, PATIENCE, Reply, Server, Setup};

/// How often each takes the lock.
const TIMES: usize = 20;

/// A lease that outlasts the test, so that a client that is not woken never takes the lock.
const LEASE_MS: &str = "600000";

fn start(config: &str) -> Server {
    Setup::new().config("lock.wake-foreign yes").config(config).start()
}

#[test]
fn locks_of_python_libraries_exclude_and_wake() {
    run_script(&start(""), "locks.py");
}

#[test]
fn release_succeeds_without_publish_command() {
    let server = start("rename-command PUBLISH \"\"");
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.REENTER door alice"), 1);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(alice.run("DBSIZE"), 0);
}

/// The script by which Redisson takes a lock: KEYS[1] the lock, ARGV[1] the lease in ms, ARGV[2] the owner. Returns nil if it has
/// the lock, or what is left of the holder's lease.
const TAKE: &str = "
local mine = redis.call('hexists', KEYS[1], ARGV[2]) == 1
if mine or redis.call('exists', KEYS[1]) == 0 then
    redis.call('hincrby', KEYS[1], ARGV[2], 1)
    redis.call('pexpire', KEYS[1], ARGV[1])
    return nil
end
return redis.call('pttl', KEYS[1])";

/// The script with which Redisson releases its only hold.
const FREE: &str = "
assert(redis.call('hincrby', KEYS[1], ARGV[1], -1) == 0)
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], 0)";

const CHANNEL: &str = "redisson_lock__channel:{door}";

/// Takes the lock as Redisson does: subscribes, tries, and tries again after each message.
fn by_redisson(server: &Server, owner: &str) {
    let (mut client, mut news) = (server.client(), server.client());
    assert_eq!(news.run(&format!("SUBSCRIBE {CHANNEL}")).items()[0], "subscribe");
    for _ in 0..TIMES {
        while client.call(&["EVAL", TAKE, "1", "door", LEASE_MS, owner]) != Reply::Nil {
            assert_eq!(news.receive_within(PATIENCE).items()[2], "0", "{owner} is not woken");
        }
        alone(&mut client);
        assert_eq!(client.call(&["EVAL", FREE, "2", "door", CHANNEL, owner]), Reply::Nil);
    }
}

fn by_commands(server: &Server, owner: &str) {
    let mut client = server.client();
    for _ in 0..TIMES {
        assert_eq!(client.run(&format!("LOCK.REENTER door {owner} PX {LEASE_MS} BLOCK 0")), 1, "{owner}");
        alone(&mut client);
        assert_eq!(client.run(&format!("LOCK.RELEASE door {owner}")), 0);
    }
}

/// Checks that no other client holds the lock.
#[track_caller]
fn alone(client: &mut Client) {
    assert_eq!(client.run("INCR inside"), 1);
    assert_eq!(client.run("DECR inside"), 0);
}

#[test]
fn redisson_is_woken_and_wakes() {
    let server = start("");
    thread::scope(|scope| {
        for number in 0..3 {
            let server = &server;
            scope.spawn(move || by_redisson(server, &format!("uuid:{number}")));
            scope.spawn(move || by_commands(server, &format!("raw:{number}")));
        }
    });
    assert_eq!(server.client().run("EXISTS door"), 0);
}
