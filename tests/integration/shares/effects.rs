//! What leaves the server for shares: ZADD, ZREM, PEXPIREAT, PERSIST and DEL, with absolute times.

use support::replicas::{self, in_step, replica_of};
use support::{Aof, Client, Reply, Server, Setup, Waiter, bytes_of, eventually, field, waiters_of};

use super::{holders_of, shares_of};

fn server_with_aof() -> (Server, Client) {
    let server = Setup::new().config(Aof::CONFIG).start();
    let client = server.client();
    (server, client)
}

/// The commands that the server wrote while `act` ran, without the marks of transactions.
fn effects(server: &Server, act: impl FnOnce()) -> Vec<String> {
    stream(server, act).into_iter().filter(|line| line != "MULTI" && line != "EXEC").collect()
}

/// The same with these marks.
fn stream(server: &Server, act: impl FnOnce()) -> Vec<String> {
    let before = server.aof().commands().len();
    act();
    server.aof().commands().split_off(before)
}

#[test]
fn shares_are_written_with_the_absolute_ends_of_their_leases() {
    let (server, mut client) = server_with_aof();
    let mut ends = Vec::new();
    let written = effects(&server, || {
        assert_eq!(client.run("LOCK.SHARE door a PX 30000"), 1);
        ends.push(client.expires_at("door"));
        assert_eq!(client.run("LOCK.SHARE door b PX 20000"), 1);
        ends.push(shares_of(&mut client, "door")[0].1.parse().expect("the end of b"));
        assert_eq!(client.run("LOCK.SHARE door b PX 10000"), 1);
        assert_eq!(client.run("LOCK.SHARE door c"), 1);
        assert_eq!(client.run("LOCK.RELEASE door c"), 0);
        assert_eq!(client.run("LOCK.RELEASE door a"), 0);
        assert_eq!(client.run("LOCK.RELEASE door b"), 0);
    });
    let [a, b] = ends[..] else { panic!("two ends") };
    let expected = [
        format!("ZADD door {a} a"),
        format!("PEXPIREAT door {a}"),
        format!("ZADD door {b} b"),
        "ZADD door inf c".to_owned(),
        "PERSIST door".to_owned(),
        "ZREM door c".to_owned(),
        format!("PEXPIREAT door {a}"),
        "ZREM door a".to_owned(),
        format!("PEXPIREAT door {b}"),
        "ZREM door b".to_owned(),
    ];
    assert_eq!(written, expected);
}

#[test]
fn what_changes_nothing_writes_nothing() {
    let (server, mut client) = server_with_aof();
    assert_eq!(client.run("LOCK.SHARE door a PX 30000"), 1);
    let written = effects(&server, || {
        for line in [
            "LOCK.SHARE door a",
            "LOCK.SHARE door a PX 100",
            "LOCK.SHARE door b LIMIT 1",
            "LOCK.SHARE door b LIMIT 1 BLOCK 10",
            "LOCK.ACQUIRE door b",
            "LOCK.ACQUIRE door a",
            "LOCK.RELEASE door b",
            "LOCK.EXTEND door b PX 1000",
            "LOCK.INFO door",
        ] {
            client.run(line);
        }
    });
    assert_eq!(written, Vec::<String>::new());
}

#[test]
fn a_hand_over_between_forms_leaves_one_form_on_replicas() {
    let (master, mut client) = server_with_aof();
    let replica = replica_of(&master);
    in_step(&replica);
    let mut reader = replica.client();
    assert_eq!(client.run("LOCK.REENTER door w PX 60000"), 1);
    let mut readers: Vec<Waiter> = ["a", "b"]
        .map(|token| Waiter::start(&master, &format!("LOCK.SHARE door {token} PX 60000 BLOCK 0")))
        .into_iter()
        .collect();
    let mut writer = Waiter::start(&master, "LOCK.ACQUIRE door w2 PX 60000 BLOCK 0");
    assert_eq!(client.run("LOCK.RELEASE door w"), 0);
    readers.iter_mut().for_each(|reader| assert_eq!(reader.reply(), 1));
    replicas::in_time("the shares are there", || {
        reader.run("TYPE door") == "zset" && holders_of(&mut reader, "door") == ["a", "b"]
    });
    assert_eq!(reader.expires_at("door"), client.expires_at("door"));
    assert_eq!(client.run("LOCK.RELEASE door a"), 0);
    assert_eq!(client.run("LOCK.RELEASE door b"), 0);
    assert_eq!(writer.reply(), 1);
    replicas::in_time("the mutex is there", || reader.run("TYPE door") == "string");
    client.ok("DEBUG LOADAOF");
    assert_eq!(client.run("GET door"), "w2");
    eventually("the lease is the same", || reader.expires_at("door") == client.expires_at("door"));
}

#[test]
fn shares_that_are_let_in_together_are_one_transaction_of_a_hundred_and_one_of_the_rest() {
    const READERS: usize = 150;
    let server = Setup::new().config(Aof::CONFIG).config("maxclients 400").start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.ACQUIRE door writer PX 600000"), 1);
    let mut readers: Vec<Waiter> = (0..READERS)
        .map(|number| {
            let line = format!("LOCK.SHARE door r{number} PX 600000 BLOCK 0");
            Waiter::send_on(&server, server.client(), &bytes_of(&line))
        })
        .collect();
    eventually("all wait", || waiters_of(&mut client, "door") == 150);
    let written = stream(&server, || {
        assert_eq!(client.run("LOCK.RELEASE door writer"), 0);
        readers.iter_mut().for_each(|reader| assert_eq!(reader.reply(), 1));
    });
    let transactions: Vec<&[String]> = written.split_inclusive(|line| line == "EXEC").collect();
    assert_eq!(transactions.len(), 2, "{written:?}");
    for (transaction, shares) in transactions.iter().zip([100, 50]) {
        assert_eq!(transaction.first().map(String::as_str), Some("MULTI"));
        assert_eq!(transaction.iter().filter(|line| line.starts_with("ZADD door ")).count(), shares);
    }
    assert_eq!(written.get(1).map(String::as_str), Some("DEL door"), "first the writer goes");
    assert_eq!(written.iter().filter(|line| line.starts_with("ZADD ")).count(), READERS, "each once");
}

#[test]
fn a_share_that_ends_leaves_in_the_transaction_that_lets_the_next_in() {
    let (server, mut client) = server_with_aof();
    assert_eq!(client.run("LOCK.SHARE door a PX 600000"), 1);
    assert_eq!(client.run("LOCK.SHARE door b PX 100"), 1);
    let written = stream(&server, || {
        let mut c = Waiter::send(&server, "LOCK.SHARE door c LIMIT 2 PX 300000 BLOCK 0");
        assert_eq!(c.reply(), 1);
    });
    let [(c, end), _] = &shares_of(&mut client, "door")[..] else { panic!("two shares") };
    assert_eq!(c, "c");
    assert_eq!(written, ["MULTI", "ZREM door b", &format!("ZADD door {end} c"), "EXEC"]);
}

#[test]
fn what_has_passed_leaves_with_the_next_write_whatever_it_is() {
    for line in [
        "LOCK.SHARE door c PX 60000",
        "LOCK.RELEASE door z",
        "LOCK.EXTEND door a PX 60000",
        "LOCK.SHARE door a PX 900000",
    ] {
        let (server, mut client) = server_with_aof();
        for (token, ms) in [("a", 600_000), ("z", 600_000), ("b1", 500), ("b2", 501)] {
            assert_eq!(client.run(&format!("LOCK.SHARE door {token} PX {ms}")), 1);
        }
        eventually("two have ended", || field(&mut client, "door", "holds") == 2);
        let nothing = stream(&server, || {
            assert_eq!(client.run("LOCK.SHARE door d LIMIT 2"), Reply::Nil);
            assert_eq!(client.run("LOCK.ACQUIRE door d"), Reply::Nil);
            assert_eq!(client.run("LOCK.EXTEND door b1 PX 1000").code(), "NOTOWNER");
        });
        assert_eq!(nothing, Vec::<String>::new(), "a refusal writes nothing");
        let written = stream(&server, || assert!(!client.run(line).is_error()));
        assert_eq!(written.first().map(String::as_str), Some("MULTI"), "{line}: {written:?}");
        assert_eq!(written.last().map(String::as_str), Some("EXEC"), "{line}: {written:?}");
        let mut removed: Vec<&String> = written.iter().filter(|line| line.starts_with("ZREM door b")).collect();
        removed.sort();
        assert_eq!(removed, ["ZREM door b1", "ZREM door b2"], "{line}");
    }
}

#[test]
fn transactions_and_scripts_of_the_clients_stay_one_transaction() {
    let (server, mut client) = server_with_aof();
    let written = stream(&server, || {
        client.send_together(&["MULTI", "SET other 1", "LOCK.SHARE door a", "LOCK.SHARE door b", "EXEC"]);
        (0..5).for_each(|_| assert!(!client.receive().is_error()));
    });
    assert_eq!(written, ["MULTI", "SET other 1", "ZADD door inf a", "ZADD door inf b", "EXEC"]);
    let script = "redis.call('LOCK.RELEASE', KEYS[1], 'a') redis.call('SET', KEYS[2], '2') \
                  return redis.call('LOCK.RELEASE', KEYS[1], 'b')";
    let written = stream(&server, || assert_eq!(client.call(&["EVAL", script, "2", "door", "other"]), 0));
    assert_eq!(written, ["MULTI", "ZREM door a", "SET other 2", "ZREM door b", "EXEC"]);
}
