//! Every way in which a lock comes free serves the first waiter, at once and before anybody who asks later.

use support::{
    Client, OBSERVATION, Reply, Server, Setup, Waiter, eventually, held_with_a_waiter, never_within, remaining_ms,
    waiters_of,
};

/// How a mutex and a re-entrant lock are taken.
const TAKE: [&str; 2] = ["LOCK.ACQUIRE", "LOCK.REENTER"];

/// What a client library's unlock script does: delete the key if the value is the caller's token.
const UNLOCK_SCRIPT: &str =
    "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('del', KEYS[1])";

/// After `lines`, which free `door`, the first waiter has it, whether somebody else asks right behind them or not.
#[track_caller]
fn serves_the_next(lines: &[&str]) {
    for take in TAKE {
        for thief in [None, Some("LOCK.ACQUIRE door thief")] {
            serves_bob(take, lines, thief);
        }
    }
}

#[track_caller]
fn serves_bob(take: &str, lines: &[&str], thief: Option<&str>) {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run(&format!("{take} door alice PX 600000")), 1);
    let mut bob = Waiter::start(&server, &format!("{take} door bob PX 90000 BLOCK 0"));
    let carol = Waiter::start(&server, "LOCK.ACQUIRE door carol BLOCK 0");
    let together: Vec<&str> = lines.iter().copied().chain(thief).collect();
    alice.send_together(&together);
    for line in lines {
        let reply = alice.receive();
        assert!(!reply.is_error() && reply != 0, "{take} {line}: {reply:?}");
    }
    if thief.is_some() {
        assert_eq!(alice.receive(), Reply::Nil, "{take}: nobody overtakes");
    }
    assert_eq!(bob.reply(), 1, "{take}: the first waiter");
    assert!(carol.is_blocked(), "{take}: only one is served");
    // On a connection of its own: MOVE leaves one in another database on servers without valkey-io/valkey#4024.
    let mut control = server.client();
    assert_eq!(waiters_of(&mut control, "door"), 1);
    assert!(remaining_ms(&mut control, "door") > 80_000, "{take}: its own lease");
    assert_eq!(control.run("LOCK.RELEASE door bob"), 0, "{take}");
}

#[test]
fn del() {
    serves_the_next(&["DEL door"]);
}

#[test]
fn unlink() {
    serves_the_next(&["UNLINK door"]);
}

#[test]
fn expire_in_the_past() {
    serves_the_next(&["EXPIRE door -1"]);
    serves_the_next(&["PEXPIREAT door 1"]);
}

#[test]
fn rename_away() {
    serves_the_next(&["RENAME door elsewhere"]);
    serves_the_next(&["RENAMENX door elsewhere"]);
}

#[test]
fn move_away() {
    serves_the_next(&["MOVE door 1"]);
}

#[test]
fn flushdb() {
    serves_the_next(&["FLUSHDB"]);
    serves_the_next(&["FLUSHDB ASYNC"]);
}

#[test]
fn flushall() {
    serves_the_next(&["FLUSHALL"]);
    serves_the_next(&["FLUSHALL ASYNC"]);
}

#[test]
fn flushall_from_another_database() {
    serves_the_next(&["SELECT 3", "FLUSHALL", "SELECT 0"]);
}

#[test]
fn swapdb() {
    serves_the_next(&["SWAPDB 0 1"]);
    serves_the_next(&["SWAPDB 1 0"]);
}

#[test]
fn a_transaction_that_deletes() {
    serves_the_next(&["MULTI", "DEL door", "EXEC"]);
}

#[test]
fn a_delete_that_the_server_does_by_itself_when_the_last_field_goes() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.REENTER door alice"), 1);
    let mut bob = Waiter::start(&server, "LOCK.REENTER door bob BLOCK 0");
    assert_eq!(alice.run("HDEL door alice"), 1);
    assert_eq!(bob.reply(), 1);
}

#[test]
fn getdel() {
    let (_server, mut alice, mut bob) = held_with_a_waiter(&Setup::new());
    assert_eq!(alice.run("GETDEL door"), "alice");
    assert_eq!(bob.reply(), 1);
}

#[test]
fn the_unlock_script_of_a_client_library() {
    let (_server, mut alice, mut bob) = held_with_a_waiter(&Setup::new());
    let foreign = alice.call(&["EVAL", UNLOCK_SCRIPT, "1", "door", "somebody"]);
    assert_eq!(foreign, 0);
    assert!(bob.is_blocked());
    assert_eq!(alice.call(&["EVAL", UNLOCK_SCRIPT, "1", "door", "alice"]), 1);
    assert_eq!(bob.reply(), 1);
    assert_eq!(alice.run("GET door"), "bob");
}

#[test]
fn release_inside_a_script_and_inside_a_transaction() {
    let (server, mut alice, mut bob) = held_with_a_waiter(&Setup::new());
    let script = "return redis.call('LOCK.RELEASE', KEYS[1], ARGV[1])";
    assert_eq!(alice.call(&["EVAL", script, "1", "door", "alice"]), 0);
    assert_eq!(bob.reply(), 1);
    let mut carol = Waiter::start(&server, "LOCK.REENTER door carol BLOCK 0");
    alice.ok("MULTI");
    assert_eq!(alice.run("LOCK.RELEASE door bob"), "QUEUED");
    assert_eq!(alice.run("EXEC"), Reply::list([Reply::Int(0)]));
    assert_eq!(carol.reply(), 1);
}

#[test]
fn a_function_that_deletes() {
    let (_server, mut alice, mut bob) = held_with_a_waiter(&Setup::new());
    let library =
        "#!lua name=locks\nredis.register_function('free', function(KEYS) return redis.call('DEL', KEYS[1]) end)";
    assert_eq!(alice.call(&["FUNCTION", "LOAD", library]), "locks");
    assert_eq!(alice.run("FCALL free 1 door"), 1);
    assert_eq!(bob.reply(), 1);
}

#[test]
fn one_transaction_or_script_that_frees_several_locks_serves_them_all() {
    let server = Server::start();
    let mut alice = server.client();
    let script = "for _, key in ipairs(KEYS) do redis.call('DEL', key) end return #KEYS";
    for by_script in [false, true] {
        let mut waiters = Vec::new();
        for door in ["a", "b", "c"] {
            assert_eq!(alice.run(&format!("LOCK.ACQUIRE {door} alice")), 1);
            waiters.push(Waiter::start(&server, &format!("LOCK.ACQUIRE {door} bob BLOCK 0")));
        }
        if by_script {
            assert_eq!(alice.call(&["EVAL", script, "3", "a", "b", "c"]), 3);
        } else {
            alice.send_together(&["MULTI", "DEL a b", "LOCK.RELEASE c alice", "EXEC"]);
            let replies: Vec<Reply> = (0..4).map(|_| alice.receive()).collect();
            assert_eq!(replies[3], Reply::list([Reply::Int(2), Reply::Int(0)]));
        }
        for (door, waiter) in ["a", "b", "c"].iter().zip(&mut waiters) {
            assert_eq!(waiter.reply(), 1, "{door}");
            assert_eq!(alice.run(&format!("LOCK.RELEASE {door} bob")), 0);
        }
    }
}

#[test]
fn one_delete_of_a_lock_that_is_taken_again_in_the_same_transaction_serves_nobody() {
    let (_server, mut alice, mut bob) = held_with_a_waiter(&Setup::new());
    alice.send_together(&["MULTI", "DEL door", "SET door carol", "EXEC"]);
    let replies: Vec<Reply> = (0..4).map(|_| alice.receive()).collect();
    assert!(!replies[3].is_error());
    never_within(OBSERVATION, "bob is served", || !bob.is_blocked());
    assert_eq!(alice.run("GET door"), "carol");
    assert_eq!(alice.run("LOCK.RELEASE door carol"), 0);
    assert_eq!(bob.reply(), 1);
}

#[test]
fn a_request_in_the_very_script_or_transaction_that_frees_the_lock_does_not_overtake() {
    let script = "redis.call('DEL', KEYS[1]) return redis.call('LOCK.ACQUIRE', KEYS[1], 'thief')";
    for by_script in [false, true] {
        let (_server, mut alice, mut bob) = held_with_a_waiter(&Setup::new());
        let thief = if by_script {
            alice.call(&["EVAL", script, "1", "door"])
        } else {
            alice.send_together(&["MULTI", "DEL door", "LOCK.ACQUIRE door thief", "EXEC"]);
            let replies: Vec<Reply> = (0..4).map(|_| alice.receive()).collect();
            replies[3].items()[1].clone()
        };
        assert_eq!(thief, Reply::Nil);
        assert_eq!(bob.reply(), 1);
        assert_eq!(alice.run("GET door"), "bob");
    }
}

#[test]
fn eviction() {
    for policy in ["allkeys-random", "allkeys-lru", "volatile-ttl"] {
        let (_server, mut alice, mut bob) = held_with_a_waiter(&Setup::new());
        alice.ok(&format!("CONFIG SET maxmemory-policy {policy}"));
        alice.ok("CONFIG SET maxmemory 1");
        assert_eq!(bob.reply(), 1, "{policy}");
        alice.ok("CONFIG SET maxmemory 0");
        let evicted = alice.info("stats", "evicted_keys").expect("a count");
        assert_ne!(evicted, "0", "{policy}: the server has evicted nothing");
    }
}

#[test]
fn the_end_of_a_lease_needs_no_help_of_the_servers_own_expiry() {
    let server = Server::start();
    let mut alice = server.client();
    alice.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    for take in TAKE {
        assert_eq!(alice.run(&format!("{take} door alice PX 60")), 1);
        let mut bob = Waiter::start(&server, &format!("{take} door bob BLOCK 0"));
        assert_eq!(bob.reply(), 1, "{take}");
        assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
    }
}

#[test]
fn the_end_of_a_lease_in_several_databases_at_once() {
    let server = Server::start();
    let databases = [0, 1, 5, 15];
    let mut waiters: Vec<(Client, Waiter)> = databases
        .iter()
        .map(|database| {
            let mut holder = server.client_in(*database);
            assert_eq!(holder.run(&format!("LOCK.ACQUIRE door holder-{database} PX 120")), 1);
            let line = format!("LOCK.ACQUIRE door waiter-{database} BLOCK 0");
            let waiter = Waiter::start_on(&server, server.client_in(*database), &support::bytes_of(&line));
            (holder, waiter)
        })
        .collect();
    for (database, (observer, waiter)) in databases.iter().zip(&mut waiters) {
        assert_eq!(waiter.reply(), 1, "database {database}");
        assert_eq!(observer.run("GET door"), format!("waiter-{database}").as_str());
    }
}

#[test]
fn freeing_a_lock_in_one_database_serves_nobody_in_another() {
    let server = Server::start();
    let (mut zero, mut one) = (server.client(), server.client_in(1));
    assert_eq!(zero.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(one.run("LOCK.ACQUIRE door alice"), 1);
    let mut in_zero = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    let line = support::bytes_of("LOCK.ACQUIRE door carol BLOCK 0");
    let mut in_one = Waiter::start_on(&server, server.client_in(1), &line);
    assert_eq!(one.run("DEL door"), 1);
    assert_eq!(in_one.reply(), 1);
    never_within(OBSERVATION, "bob is served", || !in_zero.is_blocked());
    assert_eq!(one.run("FLUSHDB"), "OK");
    never_within(OBSERVATION, "bob is served", || !in_zero.is_blocked());
    assert_eq!(zero.run("FLUSHDB"), "OK");
    assert_eq!(in_zero.reply(), 1);
}

#[test]
fn a_lock_that_nobody_waits_for_any_more_is_simply_free() {
    let (_server, mut alice, bob) = held_with_a_waiter(&Setup::new());
    drop(bob);
    eventually("bob has left", || waiters_of(&mut alice, "door") == 0);
    assert_eq!(alice.run("DEL door"), 1);
    assert_eq!(alice.run("EXISTS door"), 0);
    assert_eq!(alice.run("LOCK.ACQUIRE door carol"), 1);
}
