//! LOCK.QUEUES, and what INFO lock says of the locks that are waited for.

use support::{Client, Protocol, Reply, Server, Setup, Waiter, Waiting, Way, eventually, info_lock};

/// Alice holds a lock, and so many others wait for it.
fn contend(server: &Server, key: &str, waiters: usize) -> Vec<Waiter> {
    assert_eq!(server.client().run(&format!("LOCK.ACQUIRE {key} alice")), 1);
    let wait = |number| Waiter::start(server, &format!("LOCK.ACQUIRE {key} waiter-{number} BLOCK 0"));
    (0..waiters).map(wait).collect()
}

/// The locks that are listed, with their waiters.
#[track_caller]
fn listed(client: &mut Client, options: &str) -> Vec<(String, i64)> {
    let list = client.run(&format!("LOCK.QUEUES {options}"));
    list.items().iter().map(|lock| (lock.get("key").string(), lock.get("waiters").int())).collect()
}

fn lock(key: &str, waiters: i64) -> (String, i64) {
    (key.to_owned(), waiters)
}

#[test]
fn the_most_contended_locks_come_first_and_of_equals_the_one_that_was_waited_for_first() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.QUEUES"), Reply::List(vec![]));
    let _waiters =
        [("pair", 2), ("later", 1), ("earlier", 0), ("crowd", 4)].map(|(key, count)| contend(&server, key, count));
    let expected = [lock("crowd", 4), lock("pair", 2), lock("later", 1)];
    assert_eq!(listed(&mut client, ""), expected, "nobody waits for the fourth");
    let _one_more = Waiter::start(&server, "LOCK.ACQUIRE earlier bob BLOCK 0");
    let expected = [lock("crowd", 4), lock("pair", 2), lock("later", 1), lock("earlier", 1)];
    for count in 1..=5 {
        assert_eq!(listed(&mut client, &format!("COUNT {count}")), expected[..count.min(4)], "{count}");
    }
}

#[test]
fn ten_locks_are_listed_unless_count_says_otherwise() {
    const LOCKS: usize = 13;
    let server = Server::start();
    let mut client = server.client();
    let _waiters: Vec<_> = (0..LOCKS).map(|number| contend(&server, &format!("door-{number}"), 1)).collect();
    for (count, expected) in [("", 10), ("COUNT 3", 3), ("count 1000", LOCKS)] {
        let keys: Vec<String> = listed(&mut client, count).into_iter().map(|(key, _)| key).collect();
        let expected: Vec<String> = (0..expected).map(|number| format!("door-{number}")).collect();
        assert_eq!(keys, expected, "{count}");
    }
}

/// LOCK.QUEUES shows the wait of the first in line for the door. Returns how long each in the line had waited before.
#[track_caller]
fn shows_the_wait_of_the_first(client: &mut Client) -> Vec<i64> {
    client.ok("MULTI");
    for line in ["LOCK.WAITERS door", "LOCK.QUEUES", "LOCK.WAITERS door"] {
        client.run(line);
    }
    let replies = client.run("EXEC");
    let [before, queues, after] = replies.items() else { panic!("three replies: {replies:?}") };
    let waited = |line: &Reply| line.items().iter().map(|waiter| waiter.get("waited-ms").int()).collect::<Vec<_>>();
    let (before, after) = (waited(before), waited(after));
    let longest = queues.items()[0].get("longest-wait-ms").int();
    assert!((before[0]..=after[0]).contains(&longest), "{longest}, between {before:?} and {after:?}");
    before
}

#[test]
fn the_longest_wait_is_that_of_the_first_in_line() {
    let server = Server::start();
    let mut client = server.client();
    let mut first = contend(&server, "door", 1);
    eventually("the first has waited for a while", || info_lock(&mut client, "longest_wait_ms") >= 50);
    let _second = Waiter::start(&server, "LOCK.ACQUIRE door late BLOCK 0");
    let waited = shows_the_wait_of_the_first(&mut client);
    assert!(waited[0] >= 50 && waited[1] < waited[0], "{waited:?}");
    assert_eq!(client.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(first[0].reply(), 1);
    assert_eq!(shows_the_wait_of_the_first(&mut client).len(), 1, "now the second is the first");
}

#[test]
fn each_database_has_its_own() {
    let server = Server::start();
    let (mut zero, mut one) = (server.client(), server.client_in(1));
    let _waiters = contend(&server, "door", 2);
    assert_eq!(one.run("LOCK.ACQUIRE door alice"), 1);
    let _waiter = Way::Blocked.start_in(&server, 1, "LOCK.ACQUIRE door bob BLOCK 0");
    assert_eq!(listed(&mut zero, ""), [lock("door", 2)]);
    assert_eq!(listed(&mut one, ""), [lock("door", 1)]);
    assert_eq!(listed(&mut server.client_in(2), ""), []);
    assert_eq!(info_lock(&mut zero, "contended_locks"), 2, "INFO counts those of all databases");
}

#[test]
fn requests_count_however_they_wait_and_places_that_are_kept_do_not() {
    let server = Server::start();
    let mut client = server.client();
    let counts =
        |client: &mut Client| ["waiters", "waiters_notified", "contended_locks"].map(|name| info_lock(client, name));
    assert_eq!(client.run("LOCK.ACQUIRE door alice"), 1);
    let start = |way: Way| way.start(&server, &format!("LOCK.ACQUIRE door {way:?} BLOCK 0"));
    let waiting: Vec<Waiting> = Way::ALL.into_iter().map(start).collect();
    assert_eq!(listed(&mut client, ""), [lock("door", 3)]);
    assert_eq!(counts(&mut client), [3, 2, 1]);
    let copy = Waiter::start(&server, "LOCK.ACQUIRE door Blocked BLOCK 0");
    assert_eq!(listed(&mut client, ""), [lock("door", 4)], "a copy of a request counts, too");
    assert_eq!(counts(&mut client), [4, 2, 1]);
    drop((waiting, copy));
    eventually("all have left", || info_lock(&mut client, "waiters") == 0);
    assert_eq!(counts(&mut client), [0, 0, 0]);
    assert_eq!(info_lock(&mut client, "longest_wait_ms"), 0);
    assert_eq!(client.run("LOCK.QUEUES"), Reply::List(vec![]), "their places are kept, and nobody waits");
    let _back = Waiter::start(&server, "LOCK.ACQUIRE door Notified BLOCK 0");
    assert_eq!(listed(&mut client, ""), [lock("door", 1)]);
}

#[test]
fn it_runs_in_transactions_and_scripts_and_replies_by_the_protocol() {
    let server = Server::start();
    let _waiters = contend(&server, "door", 1);
    let mut client = server.client();
    client.ok("MULTI");
    assert_eq!(client.run("LOCK.QUEUES"), "QUEUED");
    assert_eq!(client.run("EXEC").items()[0].items()[0].get("key"), "door");
    let in_script = client.call(&["EVAL", "return redis.call('LOCK.QUEUES', 'COUNT', 1)", "0"]);
    assert_eq!(in_script.items()[0].get("waiters"), 1);
    let readonly = client.call(&["EVAL_RO", "return #redis.call('LOCK.QUEUES')", "0"]);
    assert_eq!(readonly, 1);
    let of = |protocol| server.client_speaking(protocol).run("LOCK.QUEUES");
    let (flat, map) = (of(Protocol::Resp2), of(Protocol::Resp3));
    for (list, is_map) in [(flat, false), (map, true)] {
        let [lock] = list.items() else { panic!("one lock: {list:?}") };
        assert_eq!(matches!(lock, Reply::Map(_)), is_map, "{lock:?}");
        let names: Vec<String> = lock.pairs().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["key", "waiters", "longest-wait-ms"]);
    }
}

#[test]
fn keys_of_any_bytes_are_shown_as_they_are() {
    let server = Server::start();
    let mut client = server.client();
    let key = b"\x00\r\n \xff".as_slice();
    assert_eq!(client.call(&[b"LOCK.ACQUIRE".as_slice(), key, b"alice"]), 1);
    let wait = [b"LOCK.ACQUIRE".as_slice(), key, b"bob", b"BLOCK", b"0"];
    let _waiter = Waiter::start_on(&server, server.client(), &wait);
    assert_eq!(client.run("LOCK.QUEUES").items()[0].get("key"), Reply::Text(key.to_vec()));
}

/// It is an operator's command, like KEYS.
#[test]
fn whoever_may_run_it_sees_all_locks_and_whoever_may_run_no_dangerous_commands_may_not() {
    let server = Server::start();
    let _waiters = contend(&server, "door", 1);
    let mut admin = server.client();
    admin.ok("ACL SETUSER operator on nopass ~nothing +lock.queues");
    admin.ok("ACL SETUSER worker on nopass ~* +@all -@dangerous");
    let mut operator = server.client();
    operator.ok("AUTH operator x");
    assert_eq!(listed(&mut operator, ""), [lock("door", 1)]);
    assert_eq!(operator.run("LOCK.WAITERS door").code(), "NOPERM");
    let mut worker = server.client();
    worker.ok("AUTH worker x");
    if server.flavour().has_module_acl_categories() {
        assert_eq!(worker.run("LOCK.QUEUES").code(), "NOPERM");
    } else {
        admin.ok("ACL SETUSER worker -lock.queues");
        assert_eq!(
            worker.run("LOCK.QUEUES").code(),
            "NOPERM",
            "by its name, where commands of modules have no category"
        );
    }
    assert_eq!(worker.run("LOCK.INFO door").get("waiters"), 1);
}

#[test]
fn a_node_of_a_cluster_lists_what_is_waited_for_there() {
    let server = support::one_node::with_every_slot(&Setup::new());
    let _waiters = [contend(&server, "door", 1), contend(&server, "gate", 2)];
    let mut client = server.client();
    assert_eq!(listed(&mut client, ""), [lock("gate", 2), lock("door", 1)], "keys of two slots");
    // A node without slots is asked, and not told to ask another.
    let other = support::one_node::without_slots(&Setup::new());
    assert_eq!(other.client().run("LOCK.QUEUES"), Reply::List(vec![]));
}

#[test]
fn a_replica_lists_nothing() {
    let server = Server::start();
    let mut client = server.client();
    let waiters = contend(&server, "door", 1);
    client.ok("REPLICAOF 127.0.0.1 1");
    drop(waiters);
    assert_eq!(client.run("LOCK.QUEUES"), Reply::List(vec![]));
    assert_eq!(info_lock(&mut client, "contended_locks"), 0);
}
