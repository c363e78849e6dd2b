//! One key, two kinds of clients: what LOCK.* and the locks of existing client libraries hold, each respects in the
//! other. The Python libraries are the real ones; Redisson's protocol is spoken in scripts of our own.

use support::python::run_script;
use support::{Client, OBSERVATION, Reply, Server, Waiter, never_within, remaining_ms};

/// Runs a script of tests/interop against a server of its own.
#[track_caller]
fn python(script: &str) {
    run_script(&Server::start(), script);
}

#[test]
fn redis_py_locks_and_raw_commands_exclude_each_other() {
    python("redis_py.py");
}

#[test]
fn python_redis_lock_and_raw_commands_exclude_each_other() {
    python("python_redis_lock.py");
}

/// Takes an RLock: KEYS[1] the lock, ARGV[1] the lease in ms, ARGV[2] the owner. Nil when it has it, else how long the
/// present holder's lease still runs.
pub const RLOCK_TAKE: &str = "
local mine = redis.call('hexists', KEYS[1], ARGV[2]) == 1
if mine or redis.call('exists', KEYS[1]) == 0 then
    redis.call('hincrby', KEYS[1], ARGV[2], 1)
    redis.call('pexpire', KEYS[1], ARGV[1])
    return nil
end
return redis.call('pttl', KEYS[1])";

/// Gives up one hold of an RLock. Nil when the caller has none, 0 when holds remain, 1 when it is free.
const RLOCK_FREE: &str = "
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
    return nil
end
if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then
    redis.call('pexpire', KEYS[1], ARGV[1])
    return 0
end
redis.call('del', KEYS[1])
return 1";

/// A client that takes and frees `door` by RLock's protocol, as one owner.
struct RLock {
    client: Client,
    owner: &'static str,
}

impl RLock {
    fn new(server: &Server, owner: &'static str) -> Self {
        Self { client: server.client(), owner }
    }

    #[track_caller]
    fn script(&mut self, script: &str) -> Reply {
        let reply = self.client.call(&["EVAL", script, "1", "door", "30000", self.owner]);
        assert!(!reply.is_error(), "{reply:?}");
        reply
    }

    /// Nil: taken.
    #[track_caller]
    fn take(&mut self) -> Reply {
        self.script(RLOCK_TAKE)
    }

    #[track_caller]
    fn free(&mut self) -> Reply {
        self.script(RLOCK_FREE)
    }
}

#[test]
fn an_rlock_keeps_raw_commands_out() {
    let server = Server::start();
    let mut rlock = RLock::new(&server, "uuid:1");
    let mut raw = server.client();
    assert_eq!(rlock.take(), Reply::Nil);
    assert_eq!(raw.run("LOCK.REENTER door raw"), Reply::Nil);
    assert_eq!(raw.run("LOCK.ACQUIRE door raw"), Reply::Nil);
    assert_eq!(raw.run("LOCK.RELEASE door raw").code(), "NOTOWNER");
    assert_eq!(raw.run("LOCK.EXTEND door raw PX 9").code(), "NOTOWNER");
    assert_eq!(rlock.free(), 1);
    assert_eq!(raw.run("LOCK.REENTER door raw"), 1);
}

#[test]
fn raw_commands_keep_an_rlock_out() {
    let server = Server::start();
    let mut rlock = RLock::new(&server, "uuid:1");
    let mut raw = server.client();
    assert_eq!(raw.run("LOCK.REENTER door raw PX 20000"), 1);
    let left = rlock.take().int();
    assert!((19_000..=20_000).contains(&left), "it is told how long: {left}");
    assert_eq!(rlock.free(), Reply::Nil, "it holds nothing");
    assert_eq!(raw.run("LOCK.RELEASE door raw"), 0);
    assert_eq!(rlock.take(), Reply::Nil);
}

#[test]
fn nested_holds_of_both_are_counted_jointly() {
    let server = Server::start();
    let mut rlock = RLock::new(&server, "uuid:1");
    let mut other = RLock::new(&server, "uuid:2");
    let mut raw = server.client();
    assert_eq!(rlock.take(), Reply::Nil);
    assert_eq!(raw.run("LOCK.REENTER door uuid:1"), 2);
    assert_eq!(rlock.take(), Reply::Nil);
    assert_eq!(raw.run("LOCK.REENTER door uuid:1 PX 60000"), 4);
    assert!(remaining_ms(&mut raw, "door") > 50_000, "the longer lease");
    assert_eq!(raw.run("LOCK.INFO door").get("holds"), 4);
    assert_eq!(rlock.free(), 0);
    assert_eq!(raw.run("LOCK.RELEASE door uuid:1"), 2);
    assert_eq!(rlock.free(), 0);
    assert!(other.take().int() > 0, "one hold remains");
    assert_eq!(raw.run("LOCK.RELEASE door uuid:1"), 0);
    assert_eq!(other.take(), Reply::Nil);
}

#[test]
fn the_last_hold_that_an_rlock_gives_up_serves_the_first_waiter() {
    for take in ["LOCK.REENTER", "LOCK.ACQUIRE"] {
        let server = Server::start();
        let mut rlock = RLock::new(&server, "uuid:1");
        assert_eq!(rlock.take(), Reply::Nil);
        assert_eq!(rlock.take(), Reply::Nil);
        let mut bob = Waiter::start(&server, &format!("{take} door bob BLOCK 0"));
        assert_eq!(rlock.free(), 0);
        never_within(OBSERVATION, "bob is served while a hold remains", || !bob.is_blocked());
        assert_eq!(rlock.free(), 1);
        assert_eq!(bob.reply(), 1, "{take}");
        let mut raw = server.client();
        assert_eq!(raw.run("LOCK.RELEASE door bob"), 0);
        assert_eq!(rlock.take(), Reply::Nil, "{take}");
    }
}
