//! Every way in which a lock comes free serves the first waiter, at once and before anybody who asks later.

use support::{
    Client, OBSERVATION, Reply, Server, Setup, Waiting, Way, eventually, held_with, never_within, remaining_ms,
    waiters_of,
};

/// How a mutex and a re-entrant lock are taken.
const TAKE: [&str; 2] = ["LOCK.ACQUIRE", "LOCK.REENTER"];

/// What a client library's unlock script does: delete the key if the value is the caller's token.
const UNLOCK_SCRIPT: &str =
    "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('del', KEYS[1])";

/// After `lines`, which free `door`, the first waiter has it, however it and the next one wait, and whether somebody else
/// asks right behind them or not.
#[track_caller]
fn serves_the_next(lines: &[&str]) {
    for take in TAKE {
        let server = Server::start();
        for ways in Way::IN_LINE {
            for thief in [None, Some("LOCK.ACQUIRE door thief")] {
                serves_bob(&server, take, ways, lines, thief);
            }
        }
    }
}

#[track_caller]
fn serves_bob(server: &Server, take: &str, ways: [Way; 2], lines: &[&str], thief: Option<&str>) {
    let mut alice = server.client();
    assert_eq!(alice.run(&format!("{take} door alice PX 600000")), 1);
    let mut bob = ways[0].start(server, &format!("{take} door bob PX 90000 BLOCK 0"));
    let mut carol = ways[1].start(server, "LOCK.ACQUIRE door carol BLOCK 0");
    let together: Vec<&str> = lines.iter().copied().chain(thief).collect();
    alice.send_together(&together);
    for line in lines {
        let reply = alice.receive();
        assert!(!reply.is_error() && reply != 0, "{take} {line}: {reply:?}");
    }
    if thief.is_some() {
        assert_eq!(alice.receive(), Reply::Nil, "{take} {ways:?}: nobody overtakes");
    }
    assert_eq!(bob.reply(), 1, "{take} {ways:?}: the first waiter");
    assert!(carol.waits(), "{take} {ways:?}: only one is served");
    // On a connection of its own: MOVE leaves one in another database on servers without valkey-io/valkey#4024.
    let mut control = server.client();
    assert_eq!(waiters_of(&mut control, "door"), 1);
    assert!(remaining_ms(&mut control, "door") > 80_000, "{take}: its own lease");
    assert_eq!(control.run("LOCK.RELEASE door bob"), 0, "{take}");
    assert_eq!(carol.reply(), 1, "{take} {ways:?}: the second waiter");
    bob.has_heard_nothing_else();
    control.ok("FLUSHALL");
}

/// What frees `door`, which alice holds; then bob is served.
#[track_caller]
fn serves_everybody(free: impl Fn(&mut Client)) {
    for way in Way::ALL {
        let (_server, mut alice, mut bob) = held_with(way, &Setup::new());
        free(&mut alice);
        assert_eq!(bob.reply(), 1, "{way:?}");
        assert_eq!(alice.run("GET door"), "bob");
        bob.has_heard_nothing_else();
    }
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
    for way in Way::ALL {
        assert_eq!(alice.run("LOCK.REENTER door alice"), 1);
        let mut bob = way.start(&server, "LOCK.REENTER door bob BLOCK 0");
        assert_eq!(alice.run("HDEL door alice"), 1);
        assert_eq!(bob.reply(), 1, "{way:?}");
        assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
    }
}

#[test]
fn getdel() {
    serves_everybody(|alice| assert_eq!(alice.run("GETDEL door"), "alice"));
}

/// Whether the server has a command. The tests of commands that only some servers have end early elsewhere.
#[track_caller]
fn has_command(name: &str) -> bool {
    let known = Server::start().client().run(&format!("COMMAND INFO {name}")).items()[0] != Reply::Nil;
    if !known {
        eprintln!("skipped: this server has no {name}");
    }
    known
}

#[test]
fn delex() {
    if has_command("DELEX") {
        serves_the_next(&["DELEX door"]);
        deletes_for_the_token("DELEX door IFEQ");
    }
}

#[test]
fn delifeq() {
    if has_command("DELIFEQ") {
        deletes_for_the_token("DELIFEQ door");
    }
}

/// `line` and the holder's token frees the lock, and with another token it does not.
#[track_caller]
fn deletes_for_the_token(line: &str) {
    serves_everybody(|alice| {
        assert_eq!(alice.run(&format!("{line} bob")), 0);
        assert_eq!((alice.run("GET door"), waiters_of(alice, "door")), (Reply::text("alice"), 1));
        assert_eq!(alice.run(&format!("{line} alice")), 1);
    });
}

#[test]
fn the_unlock_script_of_a_client_library() {
    for way in Way::ALL {
        let (_server, mut alice, mut bob) = held_with(way, &Setup::new());
        let foreign = alice.call(&["EVAL", UNLOCK_SCRIPT, "1", "door", "somebody"]);
        assert_eq!(foreign, 0);
        assert!(bob.waits());
        assert_eq!(alice.call(&["EVAL", UNLOCK_SCRIPT, "1", "door", "alice"]), 1);
        assert_eq!(bob.reply(), 1, "{way:?}");
        assert_eq!(alice.run("GET door"), "bob");
    }
}

#[test]
fn release_inside_a_script_and_inside_a_transaction() {
    let script = "return redis.call('LOCK.RELEASE', KEYS[1], ARGV[1])";
    for ways in Way::IN_LINE {
        let (server, mut alice, mut bob) = held_with(ways[0], &Setup::new());
        assert_eq!(alice.call(&["EVAL", script, "1", "door", "alice"]), 0);
        assert_eq!(bob.reply(), 1, "{ways:?}");
        let mut carol = ways[1].start(&server, "LOCK.REENTER door carol BLOCK 0");
        alice.ok("MULTI");
        assert_eq!(alice.run("LOCK.RELEASE door bob"), "QUEUED");
        assert_eq!(alice.run("EXEC"), Reply::list([Reply::Int(0)]));
        assert_eq!(carol.reply(), 1, "{ways:?}");
    }
}

#[test]
fn a_function_that_deletes() {
    let library =
        "#!lua name=locks\nredis.register_function('free', function(KEYS) return redis.call('DEL', KEYS[1]) end)";
    serves_everybody(|alice| {
        assert_eq!(alice.call(&["FUNCTION", "LOAD", library]), "locks");
        assert_eq!(alice.run("FCALL free 1 door"), 1);
    });
}

#[test]
fn one_transaction_or_script_that_frees_several_locks_serves_them_all() {
    let server = Server::start();
    let mut alice = server.client();
    let script = "for _, key in ipairs(KEYS) do redis.call('DEL', key) end return #KEYS";
    for by_script in [false, true] {
        let mut waiters = Vec::new();
        for (door, way) in ["a", "b", "c", "d", "e"].into_iter().zip(Way::ALL.into_iter().cycle()) {
            assert_eq!(alice.run(&format!("LOCK.ACQUIRE {door} alice")), 1);
            waiters.push((door, way.start(&server, &format!("LOCK.ACQUIRE {door} bob BLOCK 0"))));
        }
        if by_script {
            assert_eq!(alice.call(&["EVAL", script, "5", "a", "b", "c", "d", "e"]), 5);
        } else {
            let lines = ["MULTI", "DEL a b", "LOCK.RELEASE c alice", "LOCK.RELEASE d alice", "DEL e", "EXEC"];
            alice.send_together(&lines);
            let replies: Vec<Reply> = lines.iter().map(|_| alice.receive()).collect();
            assert_eq!(replies[5], Reply::list([2, 0, 0, 1].map(Reply::Int)));
        }
        for (door, waiter) in &mut waiters {
            assert_eq!(waiter.reply(), 1, "{door}");
            assert_eq!(alice.run(&format!("LOCK.RELEASE {door} bob")), 0);
        }
    }
}

#[test]
fn one_delete_of_a_lock_that_is_taken_again_in_the_same_transaction_serves_nobody() {
    for way in Way::ALL {
        let (_server, mut alice, mut bob) = held_with(way, &Setup::new());
        alice.send_together(&["MULTI", "DEL door", "SET door carol", "EXEC"]);
        let replies: Vec<Reply> = (0..4).map(|_| alice.receive()).collect();
        assert!(!replies[3].is_error());
        never_within(OBSERVATION, "bob is served", || !bob.waits());
        assert_eq!(alice.run("GET door"), "carol");
        assert_eq!(alice.run("LOCK.RELEASE door carol"), 0);
        assert_eq!(bob.reply(), 1, "{way:?}");
    }
}

#[test]
fn a_request_in_the_very_script_or_transaction_that_frees_the_lock_does_not_overtake() {
    let script = "redis.call('DEL', KEYS[1]) return redis.call('LOCK.ACQUIRE', KEYS[1], 'thief')";
    for way in Way::ALL {
        for by_script in [false, true] {
            let (_server, mut alice, mut bob) = held_with(way, &Setup::new());
            let thief = if by_script {
                alice.call(&["EVAL", script, "1", "door"])
            } else {
                alice.send_together(&["MULTI", "DEL door", "LOCK.ACQUIRE door thief", "EXEC"]);
                let replies: Vec<Reply> = (0..4).map(|_| alice.receive()).collect();
                replies[3].items()[1].clone()
            };
            assert_eq!(thief, Reply::Nil, "{way:?}");
            assert_eq!(bob.reply(), 1, "{way:?}");
            assert_eq!(alice.run("GET door"), "bob");
        }
    }
}

#[test]
fn eviction() {
    for policy in ["allkeys-random", "allkeys-lru", "volatile-ttl"] {
        for way in Way::ALL {
            let (_server, mut alice, mut bob) = held_with(way, &Setup::new());
            alice.ok(&format!("CONFIG SET maxmemory-policy {policy}"));
            alice.ok("CONFIG SET maxmemory 1");
            assert_eq!(bob.reply(), 1, "{policy} {way:?}");
            alice.ok("CONFIG SET maxmemory 0");
            let evicted = alice.info("stats", "evicted_keys").expect("a count");
            assert_ne!(evicted, "0", "{policy}: the server has evicted nothing");
        }
    }
}

#[test]
fn the_end_of_a_lease_needs_no_help_of_the_servers_own_expiry() {
    let server = Server::start();
    let mut alice = server.client();
    alice.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    for take in TAKE {
        for way in Way::ALL {
            assert_eq!(alice.run(&format!("{take} door alice PX 500")), 1);
            let mut bob = way.start(&server, &format!("{take} door bob BLOCK 0"));
            assert_eq!(bob.reply(), 1, "{take} {way:?}");
            assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
        }
    }
}

#[test]
fn the_end_of_a_lease_in_several_databases_at_once() {
    let server = Server::start();
    let databases: Vec<(u32, Way)> = [0, 1, 5, 15].iter().flat_map(|&db| Way::ALL.map(|way| (db, way))).collect();
    let mut waiters: Vec<(Client, Waiting)> = databases
        .iter()
        .map(|(db, way)| {
            let mut holder = server.client_in(*db);
            assert_eq!(holder.run(&format!("LOCK.ACQUIRE {way:?} holder-{db} PX 500")), 1);
            (holder, way.start_in(&server, *db, &format!("LOCK.ACQUIRE {way:?} waiter-{db} BLOCK 0")))
        })
        .collect();
    for ((db, way), (observer, waiter)) in databases.iter().zip(&mut waiters) {
        assert_eq!(waiter.reply(), 1, "database {db}, {way:?}");
        assert_eq!(observer.run(&format!("GET {way:?}")), format!("waiter-{db}").as_str());
    }
}

#[test]
fn freeing_a_lock_in_one_database_serves_nobody_in_another() {
    for ways in Way::IN_LINE {
        let server = Server::start();
        let (mut zero, mut one) = (server.client(), server.client_in(1));
        assert_eq!(zero.run("LOCK.ACQUIRE door alice"), 1);
        assert_eq!(one.run("LOCK.ACQUIRE door alice"), 1);
        let mut in_zero = ways[0].start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        let mut in_one = ways[1].start_in(&server, 1, "LOCK.ACQUIRE door carol BLOCK 0");
        assert_eq!(one.run("DEL door"), 1);
        assert_eq!(in_one.reply(), 1, "{ways:?}");
        never_within(OBSERVATION, "bob is served", || !in_zero.waits());
        assert_eq!(one.run("FLUSHDB"), "OK");
        never_within(OBSERVATION, "bob is served", || !in_zero.waits());
        assert_eq!(zero.run("FLUSHDB"), "OK");
        assert_eq!(in_zero.reply(), 1, "{ways:?}");
    }
}

#[test]
fn a_lock_that_nobody_waits_for_any_more_is_simply_free() {
    for way in Way::ALL {
        let (_server, mut alice, bob) = held_with(way, &Setup::new());
        drop(bob);
        eventually("bob has left", || waiters_of(&mut alice, "door") == 0);
        assert_eq!(alice.run("DEL door"), 1);
        assert_eq!(alice.run("EXISTS door"), 0);
        assert_eq!(alice.run("LOCK.ACQUIRE door carol"), 1);
    }
}
