//! The command and the layout: who may take a share, what the key looks like, what each of the other commands does to a
//! share, and what is refused.

use support::{Reply, Server, Waiter, field, remaining_ms, waiters_of};

use super::{holders_of, shares_of};

#[test]
fn the_lock_is_a_sorted_set_of_tokens_with_the_ends_of_their_leases() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.SHARE door alice PX 30000"), 1);
    assert_eq!(alice.run("TYPE door"), "zset");
    let end = alice.expires_at("door");
    assert_eq!(shares_of(&mut alice, "door"), [("alice".to_owned(), end.to_string())]);
    assert_eq!(alice.run("DBSIZE"), 1, "nothing else is written");
}

#[test]
fn the_key_lives_as_long_as_the_last_share() {
    let server = Server::start();
    let mut client = server.client();
    let mut latest = || {
        let shares = shares_of(&mut client, "door");
        let (_, score) = shares.last().expect("a share").clone();
        (score, client.expires_at("door"))
    };
    let mut control = server.client();
    for line in [
        "LOCK.SHARE door a PX 30000",
        "LOCK.SHARE door b PX 10000",
        "LOCK.SHARE door c PX 60000",
        "LOCK.EXTEND door c PX 40000",
        "LOCK.RELEASE door c",
        "LOCK.EXTEND door b PX 9000 ADD",
        "LOCK.SHARE door a PX 50000",
    ] {
        assert!(!control.run(line).is_error(), "{line}");
        let (score, expiry) = latest();
        assert_eq!(score, expiry.to_string(), "{line}");
    }
    assert_eq!(control.run("LOCK.SHARE door d"), 1);
    assert_eq!(latest(), ("inf".to_owned(), -1), "a share without a lease has no end");
    assert_eq!(control.run("LOCK.RELEASE door d"), 0);
    let (score, expiry) = latest();
    assert_eq!(score, expiry.to_string(), "and when it is gone the others have");
}

#[test]
fn any_number_holds_without_a_limit_and_no_more_than_it_with_one() {
    let server = Server::start();
    let mut client = server.client();
    for number in 1..=300 {
        assert_eq!(client.run(&format!("LOCK.SHARE door t{number} PX 60000")), 1);
    }
    assert_eq!(field(&mut client, "door", "holds"), 300);
    assert_eq!(client.run("LOCK.SHARE door one-more PX 60000 LIMIT 300"), Reply::Nil);
    assert_eq!(
        client.run("LOCK.SHARE door one-more PX 60000 LIMIT 301"),
        1,
        "all count, with what limit they were taken"
    );
    assert_eq!(client.run("LOCK.SHARE door another PX 60000 LIMIT 2147483647"), 1);
    assert_eq!(client.run("LOCK.SHARE door another PX 60000 LIMIT 1"), 1, "who has a share is told so");
    assert_eq!(field(&mut client, "door", "holds"), 302);
}

#[test]
fn a_share_that_is_asked_for_again_is_the_same_and_its_lease_only_grows() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.SHARE door a PX 30000"), 1);
    let end = client.expires_at("door");
    for line in ["LOCK.SHARE door a", "LOCK.SHARE door a PX 100", "LOCK.SHARE door a LIMIT 1"] {
        assert_eq!(client.run(line), 1, "{line}");
        assert_eq!(client.expires_at("door"), end, "{line}");
    }
    assert_eq!(client.run("LOCK.SHARE door a PX 90000"), 1);
    assert!(client.expires_at("door") > end);
    assert_eq!(client.run("LOCK.SHARE door b"), 1);
    assert_eq!(client.run("LOCK.SHARE door b PX 1000"), 1);
    assert_eq!(shares_of(&mut client, "door")[1], ("b".to_owned(), "inf".to_owned()), "it is given no lease");
    assert_eq!(client.run("LOCK.EXTEND door b PX 1000").code(), "NOLEASE");
    assert_eq!(client.run("LOCK.SHARE door b PX 1000 SESSION").code(), "NOLEASE");
}

#[test]
fn each_share_is_released_and_extended_by_itself() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.SHARE door a PX 30000"), 1);
    assert_eq!(client.run("LOCK.SHARE door b PX 30000"), 1);
    let remaining = client.run("LOCK.EXTEND door a PX 20000");
    assert_eq!(remaining, 20_000);
    let added = client.run("LOCK.EXTEND door a PX 5000 ADD").int();
    assert!((20_001..=25_000).contains(&added), "{added}");
    assert_eq!(client.run("LOCK.RELEASE door c").code(), "NOTOWNER");
    assert_eq!(client.run("LOCK.EXTEND door c PX 1000").code(), "NOTOWNER");
    assert_eq!(client.run("LOCK.RELEASE door a HOLD 3").code(), "HOLDMISMATCH");
    assert_eq!(client.run("LOCK.RELEASE door a HOLD 1"), 0);
    assert_eq!(client.run("LOCK.RELEASE door a").code(), "NOTOWNER", "it is gone");
    assert_eq!(holders_of(&mut client, "door"), ["b"]);
    assert_eq!(client.run("LOCK.RELEASE door b EX 9"), 0);
    assert_eq!(client.run("EXISTS door"), 0);
    assert_eq!(client.run("LOCK.RELEASE door b").code(), "NOTHELD");
}

#[test]
fn those_who_hold_a_share_draw_fencing_tokens() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.SHARE door a PX 30000"), 1);
    assert_eq!(client.run("LOCK.SHARE door b PX 30000"), 1);
    let first = client.run("LOCK.FENCE door a fence").int();
    let second = client.run("LOCK.FENCE door b fence").int();
    assert!(second > first);
    assert_eq!(client.run("LOCK.FENCE door c fence").code(), "NOTOWNER");
    assert_eq!(client.run("LOCK.FENCE door a door").code(), "ERR");
    assert_eq!(client.run("GET fence"), second.to_string().as_str());
}

#[test]
fn a_shared_lock_is_shown() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.SHARE door a PX 30000 SESSION"), 1);
    assert_eq!(client.run("LOCK.SHARE door b PX 60000"), 1);
    let _carol = Waiter::start(&server, "LOCK.SHARE door carol LIMIT 2 PX 1000 BLOCK 0");
    let _dave = Waiter::start(&server, "LOCK.SHARE door dave PX 1000 BLOCK 0");
    let info = client.run("LOCK.INFO door");
    assert_eq!(info.get("state"), "shared");
    assert_eq!(info.get("owner"), Reply::Nil);
    assert_eq!(info.get("holds"), 2);
    assert!((50_000..=60_000).contains(&info.get("lease-ms").int()));
    assert!(info.get("session").items().is_empty(), "whose shares are in sessions is not shown");
    assert_eq!(waiters_of(&mut client, "door"), 2);
    let waiters = client.run("LOCK.WAITERS door");
    let shown: Vec<_> = waiters.items().iter().map(|it| (it.get("kind").string(), it.get("limit").int())).collect();
    assert_eq!(shown, [("shared".to_owned(), 2), ("shared".to_owned(), 0)]);
    assert!(remaining_ms(&mut client, "door") > 50_000);
}

#[test]
fn bad_input_is_refused_and_changes_nothing() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.SHARE door a PX 30000"), 1);
    let before = shares_of(&mut client, "door");
    let beyond = (1_i64 << 53).to_string();
    let not_positive = "ERR value is out of range, must be positive";
    let no_integer = "ERR value is not an integer or out of range";
    let invalid = "ERR invalid expire time in 'lock.share' command";
    for (line, error) in [
        ("LOCK.SHARE door b LIMIT 0", not_positive),
        ("LOCK.SHARE door b LIMIT -1", not_positive),
        ("LOCK.SHARE door b LIMIT 2147483648", no_integer),
        ("LOCK.SHARE door b LIMIT 1.5", no_integer),
        ("LOCK.SHARE door b LIMIT +1", no_integer),
        ("LOCK.SHARE door b LIMIT many", no_integer),
        ("LOCK.SHARE door b LIMIT", "ERR syntax error"),
        ("LOCK.SHARE door b LIMIT 1 LIMIT 2", "ERR syntax error"),
        ("LOCK.SHARE door b NX", "ERR syntax error"),
        ("LOCK.SHARE door b HOLD 1", "ERR syntax error"),
        ("LOCK.SHARE door b PX 0", invalid),
        ("LOCK.SHARE door b PX -1", invalid),
        (&format!("LOCK.SHARE door b PX {beyond}"), invalid),
        (&format!("LOCK.SHARE new b PX {beyond}"), invalid),
        (&format!("LOCK.SHARE door a PX {beyond}"), invalid),
        ("LOCK.SHARE door b SESSION", "ERR a session needs a lease, EX or PX"),
        ("LOCK.SHARE door b NOTIFY news", "ERR NOTIFY needs BLOCK and a lease, EX or PX"),
        ("LOCK.SHARE door", "ERR wrong number of arguments for 'lock.share' command"),
        (&format!("LOCK.EXTEND door a PX {beyond}"), "ERR invalid expire time in 'lock.extend' command"),
        ("LOCK.ACQUIRE door b LIMIT 1", "ERR syntax error"),
        ("LOCK.REENTER door b LIMIT 1", "ERR syntax error"),
    ] {
        assert_eq!(client.run(line), Reply::Error(error.to_owned()), "{line}");
    }
    assert_eq!(client.call(&["LOCK.SHARE", "door", ""]).code(), "ERR");
    assert_eq!(shares_of(&mut client, "door"), before);
    assert_eq!(client.run("DBSIZE"), 1);
}

#[test]
fn the_longest_lease_of_a_share_is_exact() {
    let server = Server::start();
    let mut client = server.client();
    let latest = (1_i64 << 53) - 1;
    let room = latest - support::now_ms() - 60_000;
    assert_eq!(client.run(&format!("LOCK.SHARE door a PX {room}")), 1);
    let end = client.expires_at("door");
    assert!(end <= latest && end > latest - 61_000);
    assert_eq!(client.run("ZSCORE door a"), end.to_string().as_str());
    assert_eq!(client.run("LOCK.EXTEND door a PX 90000 ADD").code(), "ERR");
}
