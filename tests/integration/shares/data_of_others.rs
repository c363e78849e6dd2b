//! Somebody's Sorted Set is never taken for a lock, and never written.

use support::{Client, Reply, Server, now_ms};

/// Sorted Sets as others keep them, each with a command that gives the key a TTL, or none.
fn sets() -> Vec<(&'static str, Vec<String>)> {
    let (now, soon) = (now_ms(), now_ms() + 600_000);
    let seconds = soon / 1000;
    vec![
        ("a leaderboard", vec!["ZADD data 10 ann 20 bob 999999 carl".to_owned()]),
        ("one with a TTL", vec!["ZADD data 10 ann 20 bob".to_owned(), "PEXPIRE data 600000".to_owned()]),
        ("jobs by seconds", vec![format!("ZADD data {seconds} job {} late", seconds + 9)]),
        ("with a TTL", vec![format!("ZADD data {seconds} job"), "PEXPIRE data 600000".to_owned()]),
        ("jobs by milliseconds", vec![format!("ZADD data {soon} job {} late", soon + 5)]),
        (
            "by fractions, with a TTL",
            vec![format!("ZADD data {now}.25 due {soon}.75 job"), "PEXPIRE data 900000".to_owned()],
        ),
        (
            "by microseconds, with a TTL",
            vec![format!("ZADD data {}000000 job", soon), "PEXPIRE data 600000".to_owned()],
        ),
        (
            "jobs that are all due, with a TTL",
            vec![format!("ZADD data {} job", now - 5), "PEXPIRE data 600000".to_owned()],
        ),
        ("below all", vec!["ZADD data -inf ann".to_owned(), "PEXPIRE data 600000".to_owned()]),
        ("below and above all", vec!["ZADD data -inf ann +inf bob".to_owned()]),
    ]
}

const COMMANDS: [&str; 10] = [
    "LOCK.SHARE data job PX 1000",
    "LOCK.SHARE data new LIMIT 9 BLOCK 10",
    "LOCK.SHARE data new PX 1000 SESSION",
    "LOCK.ACQUIRE data job BLOCK 10",
    "LOCK.REENTER data job",
    "LOCK.RELEASE data job",
    "LOCK.EXTEND data job PX 1000",
    "LOCK.FENCE data job fence",
    "LOCK.INFO data",
    "LOCK.WAITERS data",
];

fn contents(client: &mut Client) -> (Reply, i64) {
    (client.run("ZRANGE data 0 -1 WITHSCORES"), client.expires_at("data"))
}

#[test]
fn it_is_of_the_wrong_type_for_every_command_and_stays_as_it_is() {
    let server = Server::start();
    let mut client = server.client();
    for (what, lines) in sets() {
        for line in &lines {
            assert!(!client.run(line).is_error(), "{line}");
        }
        let before = contents(&mut client);
        for line in COMMANDS {
            assert_eq!(client.run(line).code(), "WRONGTYPE", "{what}: {line}");
        }
        assert_eq!(contents(&mut client), before, "{what}");
        client.ok("FLUSHALL");
    }
}

#[test]
fn who_waits_for_a_lock_that_became_data_waits_until_the_key_is_gone() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.SHARE data a PX 60000"), 1);
    let mut waiter = support::Waiter::start(&server, "LOCK.SHARE data b LIMIT 1 PX 60000 BLOCK 0");
    client.send_together(&["DEL data", "ZADD data 10 ann 20 bob", "PEXPIRE data 300"]);
    assert_eq!(client.receive(), 1);
    assert_eq!(client.receive(), 2);
    assert_eq!(client.receive(), 1);
    assert_eq!(client.run("ZCARD data"), 2);
    assert_eq!(waiter.reply(), 1);
    assert_eq!(super::holders_of(&mut client, "data"), ["b"]);
}
