//! What leaves the server: plain commands with absolute times, in order, so that a replica, an AOF and an RDB without
//! the module hold the same locks.

use support::{Aof, Client, Reply, Server, Setup, Waiter, Way, eventually, now_ms, waiters_of};

fn server_with_aof() -> (Server, Client) {
    let server = Setup::new().config(Aof::CONFIG).start();
    let client = server.client();
    (server, client)
}

/// The commands that the server wrote while `act` ran, without the marks of a transaction around a single command.
fn effects(server: &Server, act: impl FnOnce()) -> Vec<String> {
    let before = server.aof().commands().len();
    act();
    server.aof().commands().split_off(before)
}

#[test]
fn a_grant_is_one_set_with_the_absolute_end_of_the_lease() {
    let (server, mut alice) = server_with_aof();
    let effects = effects(&server, || assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 30000"), 1));
    let end = alice.expires_at("door");
    assert_eq!(effects, [format!("SET door alice PXAT {end}")]);
}

#[test]
fn a_grant_without_a_lease_is_a_plain_set() {
    let (server, mut alice) = server_with_aof();
    let effects = effects(&server, || assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1));
    assert_eq!(effects, ["SET door alice"]);
}

#[test]
fn what_changes_nothing_writes_nothing() {
    let (server, mut alice) = server_with_aof();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 30000"), 1);
    assert_eq!(alice.run("LOCK.REENTER gate alice"), 1);
    let effects = effects(&server, || {
        for line in [
            "LOCK.ACQUIRE door bob",
            "LOCK.ACQUIRE door bob BLOCK 10",
            "LOCK.ACQUIRE door alice",
            "LOCK.ACQUIRE door alice PX 10",
            "LOCK.ACQUIRE door alice NX PX 90000",
            "LOCK.REENTER gate bob",
            "LOCK.RELEASE door bob",
            "LOCK.RELEASE nothing bob",
            "LOCK.EXTEND door bob PX 90000",
            "LOCK.EXTEND gate alice PX 90000",
            "LOCK.INFO door",
            "LOCK.WAITERS door",
        ] {
            alice.run(line);
        }
    });
    assert_eq!(effects, Vec::<String>::new());
}

#[test]
fn a_longer_lease_is_a_pexpireat() {
    let (server, mut alice) = server_with_aof();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 30000"), 1);
    for line in
        ["LOCK.ACQUIRE door alice PX 60000", "LOCK.EXTEND door alice PX 40000", "LOCK.EXTEND door alice EX 5 ADD"]
    {
        let effects = effects(&server, || assert!(!alice.run(line).is_error()));
        let end = alice.expires_at("door");
        assert_eq!(effects, [format!("PEXPIREAT door {end}")], "{line}");
    }
}

#[test]
fn a_release_that_nobody_waits_for_is_a_del() {
    let (server, mut alice) = server_with_aof();
    for take in ["LOCK.ACQUIRE", "LOCK.REENTER"] {
        assert_eq!(alice.run(&format!("{take} door alice PX 30000")), 1);
        let effects = effects(&server, || assert_eq!(alice.run("LOCK.RELEASE door alice"), 0));
        assert_eq!(effects, ["DEL door"], "{take}");
    }
}

#[test]
fn holds_are_hset_and_the_lease_goes_with_the_first_in_one_transaction() {
    let (server, mut alice) = server_with_aof();
    let first = effects(&server, || assert_eq!(alice.run("LOCK.REENTER door alice PX 30000"), 1));
    let end = alice.expires_at("door");
    let lease = format!("PEXPIREAT door {end}");
    assert_eq!(first, ["MULTI", "HSET door alice 1", &lease, "EXEC"]);
    let second = effects(&server, || assert_eq!(alice.run("LOCK.REENTER door alice"), 2));
    assert_eq!(second, ["HSET door alice 2"]);
    let back = effects(&server, || assert_eq!(alice.run("LOCK.RELEASE door alice"), 1));
    assert_eq!(back, ["HSET door alice 1"]);
    let no_lease = effects(&server, || assert_eq!(alice.run("LOCK.REENTER gate alice"), 1));
    assert_eq!(no_lease, ["HSET gate alice 1"]);
}

/// What a release writes while a waiter stands in line, with the end of the waiter's lease.
fn hand_over(take: &str, way: Way, wait: &str) -> (Vec<String>, i64) {
    let (server, mut alice) = server_with_aof();
    assert_eq!(alice.run(&format!("{take} door alice PX 30000")), 1);
    let mut bob = way.start(&server, &format!("{wait} door bob PX 60000 BLOCK 0"));
    let effects = effects(&server, || {
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(bob.reply(), 1);
    });
    (effects, alice.expires_at("door"))
}

/// Of which kind the lock was, and how bob waits for it.
const FROM: [(&str, Way); 4] = [
    ("LOCK.ACQUIRE", Way::Blocked),
    ("LOCK.REENTER", Way::Blocked),
    ("LOCK.ACQUIRE", Way::Notified),
    ("LOCK.REENTER", Way::OnOneConnection),
];

#[test]
fn a_hand_over_to_a_mutex_waiter_is_one_set() {
    for (take, way) in FROM {
        let (effects, end) = hand_over(take, way, "LOCK.ACQUIRE");
        assert_eq!(effects, [format!("SET door bob PXAT {end}")], "from {take}, {way:?}");
    }
}

#[test]
fn a_hand_over_to_a_reentrant_waiter_is_one_transaction() {
    for (take, way) in FROM {
        let (mut effects, end) = hand_over(take, way, "LOCK.REENTER");
        // Several deletes of the old key do no harm, and nothing else may stand before the new one.
        effects.dedup();
        let lease = format!("PEXPIREAT door {end}");
        assert_eq!(effects, ["MULTI", "DEL door", "HSET door bob 1", &lease, "EXEC"], "from {take}, {way:?}");
    }
}

#[test]
fn a_hand_over_at_the_end_of_a_lease_deletes_first_and_grants_then() {
    let (server, mut alice) = server_with_aof();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 100"), 1);
    let mut bob = Way::Notified.send(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
    let written = effects(&server, || assert_eq!(bob.reply(), 1));
    let grant = format!("SET door bob PXAT {}", alice.expires_at("door"));
    ends_with_a_grant(&written, &grant);
}

#[test]
fn a_hand_over_after_a_foreign_delete_comes_behind_the_delete() {
    let (server, mut alice) = server_with_aof();
    for (free, way) in [
        ("DEL door", Way::Blocked),
        ("DEL door", Way::Notified),
        ("UNLINK door", Way::Blocked),
        ("GETDEL door", Way::OnOneConnection),
        ("EXPIRE door -1", Way::Blocked),
        ("EXPIRE door -1", Way::Notified),
    ] {
        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 60000"), 1);
        let mut bob = way.start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
        let written = effects(&server, || {
            assert!(!alice.run(free).is_error());
            assert_eq!(bob.reply(), 1);
        });
        let grant = format!("SET door bob PXAT {}", alice.expires_at("door"));
        ends_with_a_grant(&written, &grant);
        assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
    }
}

/// The key is deleted, then granted, and nothing comes after the grant.
#[track_caller]
fn ends_with_a_grant(written: &[String], grant: &str) {
    let commands: Vec<&str> =
        written.iter().map(String::as_str).filter(|command| !["MULTI", "EXEC"].contains(command)).collect();
    let (last, before) = commands.split_last().expect("effects");
    assert_eq!(*last, grant, "{written:?}");
    let deletes = before.iter().all(|command| ["DEL door", "UNLINK door"].contains(command));
    assert!(deletes, "only deletes before the grant: {written:?}");
}

#[test]
fn flushall_comes_before_the_grant_that_it_causes() {
    let (server, mut alice) = server_with_aof();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    let mut written = effects(&server, || {
        alice.ok("FLUSHALL");
        assert_eq!(bob.reply(), 1);
    });
    written.retain(|command| !["MULTI", "EXEC"].contains(&command.as_str()));
    assert_eq!(written, ["FLUSHALL", "SET door bob"]);
}

#[test]
fn a_transaction_of_the_clients_stays_one_transaction() {
    let (server, mut alice) = server_with_aof();
    let written = effects(&server, || {
        alice.send_together(&["MULTI", "SET other 1", "LOCK.ACQUIRE door alice", "LOCK.RELEASE door alice", "EXEC"]);
        for _ in 0..5 {
            assert!(!alice.receive().is_error());
        }
    });
    assert_eq!(written, ["MULTI", "SET other 1", "SET door alice", "DEL door", "EXEC"]);
}

/// A few locks of every kind: held, held twice, handed over, without a lease.
fn make_locks(server: &Server, client: &mut Client) {
    assert_eq!(client.run("LOCK.ACQUIRE mutex alice PX 3600000"), 1);
    assert_eq!(client.run("LOCK.ACQUIRE forever alice"), 1);
    assert_eq!(client.run("LOCK.REENTER twice alice EX 3600"), 1);
    assert_eq!(client.run("LOCK.REENTER twice alice"), 2);
    assert_eq!(client.run("LOCK.ACQUIRE released alice"), 1);
    assert_eq!(client.run("LOCK.RELEASE released alice"), 0);
    for (key, take) in [("handed-mutex", "LOCK.ACQUIRE"), ("handed-hash", "LOCK.REENTER")] {
        assert_eq!(client.run(&format!("LOCK.ACQUIRE {key} alice")), 1);
        let mut bob = Waiter::start(server, &format!("{take} {key} bob PX 3600000 BLOCK 0"));
        assert_eq!(client.run(&format!("LOCK.RELEASE {key} alice")), 0);
        assert_eq!(bob.reply(), 1);
    }
    for (key, take) in [("expired-mutex", "LOCK.ACQUIRE"), ("expired-hash", "LOCK.REENTER")] {
        assert_eq!(client.run(&format!("LOCK.REENTER {key} alice PX 60")), 1);
        let mut bob = Waiter::start(server, &format!("{take} {key} bob PX 3600000 BLOCK 0"));
        assert_eq!(bob.reply(), 1);
    }
    assert_eq!(client.run("LOCK.EXTEND mutex alice EX 60 ADD").int() / 60_000, 60);
    make_shared_locks(server, client);
}

/// The same of shared locks.
fn make_shared_locks(server: &Server, client: &mut Client) {
    for (key, alice, bob) in [("shared", " PX 3600000", " PX 1800000"), ("shared-forever", "", " PX 60")] {
        assert_eq!(client.run(&format!("LOCK.SHARE {key} alice{alice}")), 1);
        assert_eq!(client.run(&format!("LOCK.SHARE {key} bob{bob}")), 1);
    }
    // In the place of bob's, which has ended.
    let mut carol = Waiter::send(server, "LOCK.SHARE shared-forever carol PX 3600000 LIMIT 2 BLOCK 0");
    assert_eq!(carol.reply(), 1);
    assert_eq!(client.run("LOCK.SHARE shared-last alice PX 3600000"), 1);
    assert_eq!(client.run("LOCK.SHARE shared-last bob PX 1800000"), 1);
    assert_eq!(client.run("LOCK.RELEASE shared-last alice"), 0);
    for (key, take, lease) in
        [("handed-shared", "LOCK.REENTER", " PX 3600000"), ("expired-shared", "LOCK.ACQUIRE", " PX 60")]
    {
        assert_eq!(client.run(&format!("{take} {key} alice{lease}")), 1);
        let mut readers =
            ["bob", "carol"].map(|name| Waiter::send(server, &format!("LOCK.SHARE {key} {name} PX 3600000 BLOCK 0")));
        if take == "LOCK.REENTER" {
            eventually("both wait", || waiters_of(client, key) == 2);
            assert_eq!(client.run(&format!("LOCK.RELEASE {key} alice")), 0);
        }
        readers.iter_mut().for_each(|reader| assert_eq!(reader.reply(), 1));
    }
}

/// Every key with its value and the end of its lease.
fn contents(client: &mut Client) -> Vec<(String, Reply, i64)> {
    let mut keys: Vec<String> = client.run("KEYS *").items().iter().map(Reply::string).collect();
    keys.sort();
    keys.into_iter()
        .map(|key| {
            let value = match client.run(&format!("TYPE {key}")).string().as_str() {
                "hash" => client.run(&format!("HGETALL {key}")),
                "zset" => client.run(&format!("ZRANGE {key} 0 -1 WITHSCORES")),
                _ => client.run(&format!("GET {key}")),
            };
            let end = client.expires_at(&key);
            (key, value, end)
        })
        .collect()
}

#[test]
fn an_aof_loads_without_the_module() {
    let setup = Setup::new().config(Aof::CONFIG);
    let mut server = setup.start();
    let mut client = server.client();
    make_locks(&server, &mut client);
    let expected = contents(&mut client);
    assert_eq!(expected.len(), 12);
    server.shut_down("");
    let plain = setup.without_module().in_directory_of(&server).start();
    assert_eq!(contents(&mut plain.client()), expected);
}

#[test]
fn a_rewritten_aof_has_the_same_locks() {
    let server = Setup::new().config(Aof::CONFIG).start();
    let mut client = server.client();
    make_locks(&server, &mut client);
    let longest = (1_i64 << 53) - 1 - now_ms() - 60_000;
    assert_eq!(client.run(&format!("LOCK.SHARE shared-longest alice PX {longest}")), 1);
    let expected = contents(&mut client);
    assert!(!client.run("BGREWRITEAOF").is_error());
    eventually("it is rewritten", || {
        let done = client.info("persistence", "aof_rewrite_in_progress").as_deref() == Some("0");
        done && client.info("persistence", "aof_rewrite_scheduled").as_deref() == Some("0")
    });
    assert_eq!(client.info("persistence", "aof_last_bgrewrite_status").as_deref(), Some("ok"));
    client.ok("DEBUG LOADAOF");
    assert_eq!(contents(&mut client), expected);
}

#[test]
fn an_rdb_loads_without_the_module_and_back_into_one_that_has_it() {
    let setup = Setup::new();
    let mut server = setup.start();
    let mut client = server.client();
    make_locks(&server, &mut client);
    let expected = contents(&mut client);
    server.shut_down("SAVE");
    let mut plain = setup.clone().without_module().in_directory_of(&server).start();
    assert_eq!(contents(&mut plain.client()), expected);
    plain.shut_down("SAVE");
    let again = setup.in_directory_of(&server).start();
    let mut client = again.client();
    assert_eq!(contents(&mut client), expected);
    assert_eq!(client.run("LOCK.RELEASE twice alice"), 1);
    assert_eq!(client.run("LOCK.SHARE shared-forever dave LIMIT 2"), Reply::Nil);
    assert_eq!(client.run("LOCK.RELEASE shared-forever alice"), 0);
    assert_eq!(client.run("LOCK.SHARE shared-forever dave LIMIT 2"), 1);
}

/// A replica without the module that has received everything so far.
fn replica_of(master: &Server) -> Server {
    let replica = Setup::new().without_module().config(&format!("replicaof 127.0.0.1 {}", master.port())).start();
    eventually("the replica is in step", || {
        let mut client = replica.client();
        client.info("replication", "master_link_status").as_deref() == Some("up")
    });
    replica
}

#[test]
fn a_replica_without_the_module_holds_the_same_locks() {
    let master = Setup::new().config("repl-diskless-sync-delay 0").start();
    let mut client = master.client();
    assert_eq!(client.run("LOCK.ACQUIRE before alice PX 3600000"), 1);
    let replica = replica_of(&master);
    make_locks(&master, &mut client);
    assert_eq!(client.run("WAIT 1 5000"), 1);
    let expected = contents(&mut client);
    assert_eq!(expected.len(), 13);
    assert_eq!(contents(&mut replica.client()), expected);
}

#[test]
fn wait_after_a_grant_means_that_the_replica_has_it() {
    let master = Setup::new().config("repl-diskless-sync-delay 0").start();
    let mut alice = master.client();
    let replica = replica_of(&master);
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let mut bob = master.client();
    bob.send_together(&["LOCK.ACQUIRE door bob BLOCK 0", "WAIT 1 5000"]);
    eventually("bob waits", || waiters_of(&mut alice, "door") == 1);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(bob.receive(), 1);
    assert_eq!(bob.receive(), 1, "one replica has it");
    assert_eq!(replica.client().run("GET door"), "bob");
}
