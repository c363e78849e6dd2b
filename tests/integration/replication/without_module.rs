//! Files and replicas without the module hold the same locks: the module writes plain commands with absolute times.

use support::replicas::in_step;
use support::{Aof, Client, Reply, Server, Setup, Waiter, eventually, now_ms, waiters_of};

/// Makes locks of each form: with and without a lease, held again, extended, handed over and released.
#[track_caller]
fn make_locks(server: &Server) {
    let mut client = server.client();
    for (line, reply) in [
        ("LOCK.ACQUIRE mutex alice PX 3600000", 1),
        ("LOCK.ACQUIRE forever alice", 1),
        ("LOCK.REENTER twice alice EX 3600", 1),
        ("LOCK.REENTER twice alice", 2),
        ("LOCK.ACQUIRE released alice", 1),
        ("LOCK.RELEASE released alice", 0),
        ("LOCK.SHARE shared alice PX 3600000", 1),
        ("LOCK.SHARE shared bob PX 1800000", 1),
        ("LOCK.SHARE shared-forever alice", 1),
        ("LOCK.SHARE shared-forever bob PX 60", 1),
        ("LOCK.SHARE shared-last alice PX 3600000", 1),
        ("LOCK.SHARE shared-last bob PX 1800000", 1),
        ("LOCK.RELEASE shared-last alice", 0),
    ] {
        assert_eq!(client.run(line), reply, "{line}");
    }
    assert!(client.run("LOCK.EXTEND mutex alice EX 60 ADD").int() > 3_600_000);
    let longest = (1_i64 << 53) - 1 - now_ms() - 60_000;
    assert_eq!(client.run(&format!("LOCK.SHARE shared-longest alice PX {longest}")), 1);
    // It replaces the share of bob, which has ended.
    assert_eq!(client.run("LOCK.SHARE shared-forever carol PX 3600000 LIMIT 2 BLOCK 0"), 1);
    for take in ["ACQUIRE", "REENTER", "SHARE"] {
        for (key, lease) in [("handed", ""), ("expired", "PX 60")] {
            let key = format!("{key}-{take}");
            assert_eq!(client.run(format!("LOCK.REENTER {key} alice {lease}").trim_end()), 1);
            let mut bob = Waiter::send(server, &format!("LOCK.{take} {key} bob PX 3600000 BLOCK 0"));
            if lease.is_empty() {
                eventually("bob waits", || waiters_of(&mut client, &key) == 1);
                assert_eq!(client.run(&format!("LOCK.RELEASE {key} alice")), 0);
            }
            assert_eq!(bob.reply(), 1);
        }
    }
}

/// Returns every key with its value and the end of its lease.
fn contents(server: &Server) -> Vec<(String, Reply, i64)> {
    let mut client = server.client();
    let mut keys: Vec<String> = client.run("KEYS *").items().iter().map(Reply::string).collect();
    keys.sort();
    keys.into_iter().map(|key| (key.clone(), value(&mut client, &key), client.expires_at(&key))).collect()
}

fn value(client: &mut Client, key: &str) -> Reply {
    match client.run(&format!("TYPE {key}")).string().as_str() {
        "hash" => client.run(&format!("HGETALL {key}")),
        "zset" => client.run(&format!("ZRANGE {key} 0 -1 WITHSCORES")),
        _ => client.run(&format!("GET {key}")),
    }
}

#[test]
fn aof_loads_without_module() {
    let setup = Setup::new().config(Aof::CONFIG);
    let mut server = setup.start();
    make_locks(&server);
    let expected = contents(&server);
    assert_eq!(expected.len(), 13);
    let mut client = server.client();
    assert!(!client.run("BGREWRITEAOF").is_error());
    eventually("it is rewritten", || {
        let is_off = |client: &mut Client, field: &str| client.info("persistence", field).as_deref() == Some("0");
        is_off(&mut client, "aof_rewrite_in_progress") && is_off(&mut client, "aof_rewrite_scheduled")
    });
    client.ok("DEBUG LOADAOF");
    assert_eq!(contents(&server), expected, "the file that was rewritten");
    server.shut_down("");
    assert_eq!(contents(&setup.without_module().in_directory_of(&server).start()), expected);
}

#[test]
fn rdb_loads_without_module_and_with_it_again() {
    let setup = Setup::new();
    let mut server = setup.start();
    make_locks(&server);
    let expected = contents(&server);
    server.shut_down("SAVE");
    let mut plain = setup.clone().without_module().in_directory_of(&server).start();
    assert_eq!(contents(&plain), expected);
    plain.shut_down("SAVE");
    let again = setup.in_directory_of(&server).start();
    assert_eq!(contents(&again), expected);
    let mut client = again.client();
    assert_eq!(client.run("LOCK.RELEASE twice alice"), 1);
    assert_eq!(client.run("LOCK.SHARE shared-forever dave LIMIT 2"), Reply::Nil);
    assert_eq!(client.run("LOCK.RELEASE shared-forever alice"), 0);
    assert_eq!(client.run("LOCK.SHARE shared-forever dave LIMIT 2"), 1);
}

#[test]
fn replica_without_module_has_same_locks() {
    let master = Setup::new().config("repl-diskless-sync-delay 0").start();
    let replica = Setup::new().without_module().config(&format!("replicaof 127.0.0.1 {}", master.port())).start();
    in_step(&replica);
    make_locks(&master);
    let mut client = master.client();
    client.ok("SET mark x");
    assert_eq!(client.run("WAIT 1 5000"), 1);
    assert_eq!(contents(&replica), contents(&master));
}
