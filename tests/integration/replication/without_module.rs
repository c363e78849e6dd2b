//! Files and replicas without the module hold the same locks: what the module writes are plain commands with absolute times.

use support::{Aof, Client, Reply, Server, Setup, Waiter, eventually, now_ms, waiters_of};

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
    // It replaces the share of bob, which has ended.
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
fn aof_loads_without_module() {
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
fn rewritten_aof_has_same_locks() {
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
fn rdb_loads_without_module_and_with_it_again() {
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
fn replica_without_module_has_same_locks() {
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
