//! Fencing tokens: only the holder draws, and whatever happens to holders, counter, clock and server, they rise.

use support::{Aof, Client, Reply, Server, Setup, Waiter, eventually, now_us, one_node, python, replicas, waiters_of};

/// Ahead of any clock, so that only the counter can bring about what comes after it.
const AHEAD: i64 = 9_000_000_000_000_000;

/// The highest token: 2^53 - 1.
const LAST: i64 = (1 << 53) - 1;

const TAKE: [&str; 2] = ["LOCK.ACQUIRE", "LOCK.REENTER"];

#[track_caller]
fn draw(client: &mut Client, token: &str) -> i64 {
    client.run(&format!("LOCK.FENCE door {token} counter")).int()
}

/// A server where `alice` holds the mutex `door`.
#[track_caller]
fn held(setup: &Setup) -> (Server, Client) {
    let server = setup.start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    (server, alice)
}

#[track_caller]
fn rises(tokens: &[i64]) {
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "not strictly rising: {tokens:?}");
}

#[test]
fn only_the_holder_draws() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.FENCE door alice counter").code(), "NOTHELD");
    for take in TAKE {
        assert_eq!(client.run(&format!("{take} door alice")), 1);
        assert_eq!(client.run("LOCK.FENCE door bob counter").code(), "NOTOWNER", "{take}");
        assert_eq!(client.run("EXISTS counter"), 0, "{take}: a refusal draws nothing");
        assert!(draw(&mut client, "alice") > 0, "{take}");
        assert_eq!(client.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(client.run("LOCK.FENCE door alice counter").code(), "NOTHELD", "{take}");
        assert_eq!(client.run("DEL counter"), 1);
    }
}

#[test]
fn nobody_draws_after_the_lease() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 40"), 1);
    draw(&mut client, "alice");
    eventually("the lease ends", || client.pttl("door") == -2);
    assert_eq!(client.run("LOCK.FENCE door alice counter").code(), "NOTHELD");
    assert_eq!(client.run("LOCK.ACQUIRE door bob"), 1);
    assert_eq!(client.run("LOCK.FENCE door alice counter").code(), "NOTOWNER");
}

#[test]
fn a_draw_leaves_the_lock_as_it_is() {
    let server = Server::start();
    let mut client = server.client();
    for take in TAKE {
        assert_eq!(client.run(&format!("{take} door alice PX 600000")), 1);
        let before = (client.run("LOCK.INFO door").get("holds"), client.expires_at("door"));
        draw(&mut client, "alice");
        assert_eq!((client.run("LOCK.INFO door").get("holds"), client.expires_at("door")), before, "{take}");
        assert_eq!(client.run("LOCK.RELEASE door alice"), 0);
    }
}

#[test]
fn tokens_rise_on_one_connection_and_from_holder_to_holder() {
    for take in TAKE {
        let server = Server::start();
        let mut alice = server.client();
        assert_eq!(alice.run(&format!("{take} door alice")), 1);
        let mut tokens: Vec<i64> = (0..200).map(|_| draw(&mut alice, "alice")).collect();
        for next in ["bob", "carol", "dave"] {
            let mut waiter = Waiter::start(&server, &format!("{take} door {next} BLOCK 0"));
            let holder = alice.run("LOCK.INFO door").get("owner").string();
            assert_eq!(alice.run(&format!("LOCK.RELEASE door {holder}")), 0);
            assert_eq!(waiter.reply(), 1);
            tokens.push(draw(&mut alice, next));
        }
        rises(&tokens);
    }
}

#[test]
fn a_token_is_the_unix_time_in_microseconds_or_one_more_than_the_counter() {
    let (_server, mut alice) = held(&Setup::new());
    let before = now_us();
    let token = draw(&mut alice, "alice");
    assert!((before..=now_us()).contains(&token), "{token}");
    assert_eq!(alice.run("GET counter"), token.to_string().as_str());
    for behind in ["0", "-5", "17"] {
        alice.ok(&format!("SET counter {behind}"));
        let before = now_us();
        assert!(draw(&mut alice, "alice") >= before, "the clock is the floor");
    }
    // As if the clock had been set back: the counter is ahead of it.
    alice.ok(&format!("SET counter {AHEAD}"));
    assert_eq!(draw(&mut alice, "alice"), AHEAD + 1);
    assert_eq!(draw(&mut alice, "alice"), AHEAD + 2);
    assert_eq!(alice.run("GET counter"), (AHEAD + 2).to_string().as_str());
    assert_eq!(alice.run("DEL counter"), 1);
    let before = now_us();
    let token = draw(&mut alice, "alice");
    assert!((before..=now_us()).contains(&token), "a lost counter starts from the clock: {token}");
}

#[test]
fn one_counter_serves_many_locks() {
    let server = Server::start();
    let mut client = server.client();
    client.ok(&format!("SET counter {AHEAD}"));
    assert_eq!(client.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(client.run("LOCK.REENTER gate bob"), 1);
    for round in 0..3 {
        assert_eq!(client.run("LOCK.FENCE door alice counter"), AHEAD + 2 * round + 1);
        assert_eq!(client.run("LOCK.FENCE gate bob counter"), AHEAD + 2 * round + 2);
    }
}

#[test]
fn the_counters_expiry_is_kept_exactly() {
    let (_server, mut alice) = held(&Setup::new());
    draw(&mut alice, "alice");
    assert_eq!(alice.pttl("counter"), -1, "none comes by itself");
    alice.ok(&format!("SET counter {AHEAD} PX 600000"));
    let end = alice.expires_at("counter");
    for number in 1..=3 {
        assert_eq!(draw(&mut alice, "alice"), AHEAD + number);
        assert_eq!(alice.expires_at("counter"), end);
    }
    alice.ok(&format!("SET counter {AHEAD} PX 1"));
    eventually("the counter expires", || alice.pttl("counter") == -2);
    assert!(draw(&mut alice, "alice") < AHEAD);
    assert_eq!(alice.pttl("counter"), -1, "the new one has no expiry");
}

/// The request answers the error, and neither key is another afterwards.
#[track_caller]
fn refused(client: &mut Client, request: &str, error: &str) {
    let mut look = || ["door", "counter"].map(|key| (client.run(&format!("DUMP {key}")), client.expires_at(key)));
    let before = look();
    let reply = client.run(request);
    assert_eq!(reply.error(), error, "{request}");
    let mut look = || ["door", "counter"].map(|key| (client.run(&format!("DUMP {key}")), client.expires_at(key)));
    assert_eq!(look(), before, "{request} changed something");
}

#[test]
fn a_counter_that_is_none_is_an_error_and_stays_as_it_is() {
    const WRONGTYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
    const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
    const AT_ITS_END: &str = "ERR increment or decrement would overflow";
    let (_server, mut alice) = held(&Setup::new());
    let request = "LOCK.FENCE door alice counter";
    for make in ["RPUSH counter 1", "HSET counter alice 1", "SADD counter 1", "ZADD counter 1 1", "XADD counter * a 1"]
    {
        assert!(!alice.run(make).is_error());
        assert_eq!(alice.run("PEXPIRE counter 600000"), 1);
        refused(&mut alice, request, WRONGTYPE);
        assert_eq!(alice.run("DEL counter"), 1);
    }
    for text in ["text", "1.5", "+1", "01", "1e3", "0x10", "9223372036854775808"] {
        alice.ok(&format!("SET counter {text} PX 600000"));
        refused(&mut alice, request, NOT_AN_INTEGER);
    }
    assert_eq!(alice.call(&["SET", "counter", ""]), "OK");
    refused(&mut alice, request, NOT_AN_INTEGER);
    for end in [LAST, LAST + 1, i64::MAX] {
        alice.ok(&format!("SET counter {end} PX 600000"));
        refused(&mut alice, request, AT_ITS_END);
    }
    alice.ok(&format!("SET counter {}", LAST - 1));
    assert_eq!(draw(&mut alice, "alice"), LAST, "the last of all");
    refused(&mut alice, request, AT_ITS_END);
    refused(&mut alice, "LOCK.FENCE door alice door", "ERR the counter must be another key than the lock");
    refused(&mut alice, "LOCK.FENCE door alice", "ERR wrong number of arguments for 'lock.fence' command");
    refused(&mut alice, "LOCK.FENCE door alice counter more", "ERR wrong number of arguments for 'lock.fence' command");
    assert_eq!(alice.run("DEL door"), 1);
    assert_eq!(alice.run("RPUSH door alice"), 1);
    refused(&mut alice, request, WRONGTYPE);
}

#[test]
fn tokens_rise_over_a_restart_with_an_aof_and_with_an_rdb() {
    for (config, how) in [("appendonly yes\nappendfsync always", "NOSAVE"), ("", "SAVE")] {
        let setup = Setup::new().config(config);
        let (mut server, mut alice) = held(&setup);
        alice.ok(&format!("SET counter {AHEAD} PX 600000"));
        let end = alice.expires_at("counter");
        assert_eq!(draw(&mut alice, "alice"), AHEAD + 1);
        server.shut_down(how);
        let again = setup.in_directory_of(&server).start();
        let mut alice = again.client();
        assert_eq!(draw(&mut alice, "alice"), AHEAD + 2, "{how}");
        assert_eq!(alice.expires_at("counter"), end, "{how}");
    }
}

#[test]
fn tokens_rise_over_the_promotion_of_a_replica() {
    let master = replicas::master("");
    let replica = replicas::replica_of(&master);
    let mut alice = master.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    alice.ok(&format!("SET counter {AHEAD}"));
    assert_eq!(draw(&mut alice, "alice"), AHEAD + 1);
    let clocked = alice.run("LOCK.FENCE door alice second").int();
    assert_eq!(alice.run("WAIT 1 5000"), 1);
    let mut promoted = replica.client();
    assert_eq!(promoted.run("LOCK.FENCE door alice counter").code(), "READONLY");
    promoted.ok("REPLICAOF NO ONE");
    assert_eq!(draw(&mut promoted, "alice"), AHEAD + 2);
    // What the old master draws from now on is lost to the new one, for which the clock makes up.
    let lost = alice.run("LOCK.FENCE door alice second").int();
    assert_eq!(promoted.run("GET second"), clocked.to_string().as_str());
    rises(&[clocked, lost, promoted.run("LOCK.FENCE door alice second").int()]);
}

#[test]
fn what_is_replicated_is_a_plain_set() {
    let (server, mut alice) = held(&Setup::new().config(Aof::CONFIG));
    let token = draw(&mut alice, "alice");
    let written = server.aof().commands();
    assert_eq!(written.last(), Some(&format!("SET counter {token}")));
    alice.ok(&format!("SET counter {AHEAD} PX 600000"));
    let before = server.aof().commands().len();
    assert_eq!(draw(&mut alice, "alice"), AHEAD + 1);
    assert!(alice.run("LOCK.FENCE door bob counter").is_error());
    assert!(alice.run("LOCK.FENCE door alice door").is_error());
    let end = alice.expires_at("counter");
    assert_eq!(server.aof().commands().split_off(before), [format!("SET counter {} PXAT {end}", AHEAD + 1)]);
}

#[test]
fn a_draw_in_a_transaction_and_in_a_script() {
    let (_server, mut alice) = held(&Setup::new());
    alice.ok(&format!("SET counter {AHEAD}"));
    alice.ok("MULTI");
    for line in ["LOCK.FENCE door alice counter", "LOCK.FENCE door bob counter", "LOCK.FENCE door alice counter"] {
        assert_eq!(alice.run(line), "QUEUED");
    }
    let replies = alice.run("EXEC");
    assert_eq!(replies.items()[0], AHEAD + 1);
    assert_eq!(replies.items()[1].code(), "NOTOWNER");
    assert_eq!(replies.items()[2], AHEAD + 2);
    let script = "return redis.call('LOCK.FENCE', KEYS[1], ARGV[1], KEYS[2])";
    assert_eq!(alice.call(&["EVAL", script, "2", "door", "counter", "alice"]), AHEAD + 3);
    assert!(alice.call(&["EVAL", script, "2", "door", "counter", "bob"]).error().contains("NOTOWNER"));
}

#[test]
fn a_draw_behind_an_acquire_that_waits_comes_after_the_grant() {
    for take in TAKE {
        let (server, mut alice) = held(&Setup::new());
        let early = draw(&mut alice, "alice");
        let mut bob = server.client();
        bob.send_together(&[&format!("{take} door bob BLOCK 0"), "LOCK.FENCE door bob counter"]);
        eventually("bob waits", || waiters_of(&mut alice, "door") == 1);
        let late = draw(&mut alice, "alice");
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(bob.receive(), 1, "{take}");
        rises(&[early, late, bob.receive().int()]);
    }
}

#[test]
fn both_keys_are_known_to_the_server() {
    let server = Server::start();
    let keys = server.client().run("COMMAND GETKEYS LOCK.FENCE door alice counter");
    assert_eq!(keys, Reply::list([Reply::text("door"), Reply::text("counter")]));
}

#[test]
fn an_acl_must_allow_both_keys() {
    let (server, mut alice) = held(&Setup::new());
    let users = [("locks", "~door", false), ("counters", "~counter", false), ("both", "~door ~counter", true)];
    for (user, keys, allowed) in users {
        alice.ok(&format!("ACL SETUSER {user} on nopass {keys} +lock.fence"));
        let mut client = server.client();
        client.ok(&format!("AUTH {user} any"));
        let reply = client.run("LOCK.FENCE door alice counter");
        if allowed {
            assert!(reply.int() > 0, "{user}");
        } else {
            assert_eq!(reply.code(), "NOPERM", "{user}");
            assert_eq!(alice.run("EXISTS counter"), 0, "{user}");
        }
    }
}

#[test]
fn in_a_cluster_both_keys_are_in_one_slot() {
    let server = one_node::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(alice.run("LOCK.FENCE door alice elsewhere").code(), "CROSSSLOT");
    assert_eq!(alice.run("EXISTS elsewhere"), 0);
    assert!(alice.run("LOCK.FENCE door alice {door}:fence").int() > 0);
}

#[test]
fn a_resource_refuses_a_holder_that_comes_back_after_its_lease() {
    python::run_script(&Server::start(), "fenced_resource.py");
}
