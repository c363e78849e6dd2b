//! Looking inside: LOCK.INFO, LOCK.WAITERS, INFO, and what the server tells about the commands.

use support::{Client, Protocol, Reply, Server, Waiter, bytes_of, eventually, info_lock, waiters_of};

/// What the server must tell about a command.
struct Command {
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    categories: &'static [&'static str],
    /// Arguments with every option that the command has.
    example: &'static str,
    keys: &'static [&'static str],
}

const COMMANDS: [Command; 9] = [
    Command {
        name: "lock.acquire",
        arity: -3,
        flags: &["blocking", "denyoom", "fast", "write"],
        categories: &["write", "blocking"],
        example: "key token PX 9 BLOCK 0 NX SESSION NOTIFY channel",
        keys: &["key"],
    },
    Command {
        name: "lock.reenter",
        arity: -3,
        flags: &["blocking", "denyoom", "fast", "write"],
        categories: &["write", "blocking"],
        example: "key owner EX 9 BLOCK 0 HOLD 1 SESSION NOTIFY channel",
        keys: &["key"],
    },
    Command {
        name: "lock.share",
        arity: -3,
        flags: &["blocking", "denyoom", "fast", "write"],
        categories: &["write", "blocking"],
        example: "key token EX 9 LIMIT 3 BLOCK 0 SESSION NOTIFY channel",
        keys: &["key"],
    },
    Command {
        name: "lock.release",
        arity: -3,
        flags: &["fast", "write"],
        categories: &["write"],
        example: "key token PX 9 HOLD 1",
        keys: &["key"],
    },
    Command {
        name: "lock.extend",
        arity: -5,
        flags: &["fast", "write"],
        categories: &["write"],
        example: "key token PX 9 ADD",
        keys: &["key"],
    },
    Command {
        name: "lock.fence",
        arity: 4,
        flags: &["denyoom", "fast", "write"],
        categories: &["write"],
        example: "key token counter",
        keys: &["key", "counter"],
    },
    Command {
        name: "lock.info",
        arity: 2,
        flags: &["fast", "readonly"],
        categories: &["read"],
        example: "key",
        keys: &["key"],
    },
    Command {
        name: "lock.waiters",
        arity: -2,
        flags: &["readonly"],
        categories: &["read", "slow"],
        example: "key COUNT 9",
        keys: &["key"],
    },
    Command {
        name: "lock.queues",
        arity: -1,
        flags: &["admin", "readonly"],
        categories: &["read", "slow", "admin", "dangerous"],
        example: "COUNT 9",
        keys: &[],
    },
];

impl Command {
    fn writes(&self) -> bool {
        self.flags.contains(&"write")
    }
}

const INFO_FIELDS: [&str; 7] = ["state", "owner", "holds", "lease-ms", "waiters", "session", "recovery-ms"];
const WAITER_FIELDS: [&str; 7] = ["token", "kind", "limit", "waited-ms", "remaining-ms", "client-id", "channel"];

fn names(reply: &Reply) -> Vec<String> {
    reply.pairs().into_iter().map(|(name, _)| name).collect()
}

#[test]
fn info_of_a_free_lock() {
    let server = Server::start();
    let info = server.client().run("LOCK.INFO door");
    assert_eq!(info.get("state"), "free");
    assert_eq!(info.get("owner"), Reply::Nil);
    assert_eq!(info.get("holds"), 0);
    assert_eq!(info.get("lease-ms"), -1);
    assert_eq!(info.get("waiters"), 0);
    assert_eq!(info.get("session"), Reply::List(vec![]));
}

#[test]
fn info_of_a_mutex_and_of_a_reentrant_lock() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 30000"), 1);
    let info = alice.run("LOCK.INFO door");
    assert_eq!(info.get("state"), "mutex");
    assert_eq!(info.get("owner"), "alice");
    assert_eq!(info.get("holds"), 1);
    assert!((29_000..=30_000).contains(&info.get("lease-ms").int()));

    assert_eq!(alice.run("LOCK.REENTER gate bob"), 1);
    assert_eq!(alice.run("LOCK.REENTER gate bob"), 2);
    let _carol = Waiter::start(&server, "LOCK.ACQUIRE gate carol BLOCK 0");
    let info = alice.run("LOCK.INFO gate");
    assert_eq!(info.get("state"), "reentrant");
    assert_eq!(info.get("owner"), "bob");
    assert_eq!(info.get("holds"), 2);
    assert_eq!(info.get("lease-ms"), -1);
    assert_eq!(info.get("waiters"), 1);
}

#[test]
fn info_of_a_lock_whose_lease_has_ended_is_free() {
    let server = Server::start();
    let mut alice = server.client();
    alice.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 20"), 1);
    eventually("the lease ends", || alice.run("LOCK.INFO door").get("state") == "free");
    assert_eq!(alice.run("LOCK.INFO door").get("owner"), Reply::Nil);
}

#[test]
fn maps_are_maps_in_resp3_and_flat_arrays_in_resp2() {
    let server = Server::start();
    let mut two = server.client();
    let mut three = server.client_speaking(Protocol::Resp3);
    assert_eq!(two.run("LOCK.ACQUIRE door alice"), 1);
    let _bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    let (flat, map) = (two.run("LOCK.INFO door"), three.run("LOCK.INFO door"));
    assert!(matches!(flat, Reply::List(_)), "{flat:?}");
    assert!(matches!(map, Reply::Map(_)), "{map:?}");
    for info in [&flat, &map] {
        assert_eq!(names(info), INFO_FIELDS);
    }
    let (flat, map) = (two.run("LOCK.WAITERS door"), three.run("LOCK.WAITERS door"));
    for (waiters, is_map) in [(&flat, false), (&map, true)] {
        let [waiter] = waiters.items() else { panic!("one waiter: {waiters:?}") };
        assert_eq!(matches!(waiter, Reply::Map(_)), is_map, "{waiter:?}");
        assert_eq!(names(waiter), WAITER_FIELDS);
    }
}

#[test]
fn waiters_are_listed_first_in_line_first() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.WAITERS door"), Reply::List(vec![]));
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(alice.run("LOCK.WAITERS door"), Reply::List(vec![]));
    let bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 60000");
    let carol = Waiter::start(&server, "LOCK.REENTER door carol BLOCK 0");
    let list = alice.run("LOCK.WAITERS door");
    let [first, second] = list.items() else { panic!("two waiters: {list:?}") };
    assert_eq!(first.get("token"), "bob");
    assert_eq!(first.get("kind"), "mutex");
    assert_eq!(first.get("client-id"), bob.id());
    assert!((50_000..=60_000).contains(&first.get("remaining-ms").int()), "{first:?}");
    assert_eq!(second.get("token"), "carol");
    assert_eq!(second.get("kind"), "reentrant");
    assert_eq!(second.get("client-id"), carol.id());
    assert_eq!(second.get("remaining-ms"), -1, "BLOCK 0 has no end");
    eventually("waiting counts up", || {
        let list = alice.run("LOCK.WAITERS door");
        list.items().iter().all(|waiter| waiter.get("waited-ms").int() >= 20)
    });
    let one = alice.run("LOCK.WAITERS door COUNT 1");
    assert_eq!(one.items().len(), 1);
    assert_eq!(one.items()[0].get("token"), "bob");
}

#[test]
fn a_hundred_waiters_are_listed_unless_count_says_otherwise() {
    const WAITERS: i64 = 103;
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let _clients: Vec<Client> = (0..WAITERS)
        .map(|number| {
            let mut client = server.client();
            client.send(&bytes_of(&format!("LOCK.ACQUIRE door token-{number:03} BLOCK 0")));
            eventually("it waits", || waiters_of(&mut alice, "door") == number + 1);
            client
        })
        .collect();
    for (count, listed) in [("", 100), ("COUNT 7", 7), ("COUNT 1000", WAITERS), ("count 103", WAITERS)] {
        let list = alice.run(&format!("LOCK.WAITERS door {count}"));
        let tokens: Vec<String> = list.items().iter().map(|waiter| waiter.get("token").string()).collect();
        let expected: Vec<String> = (0..listed).map(|number| format!("token-{number:03}")).collect();
        assert_eq!(tokens, expected, "{count}");
    }
}

#[test]
fn tokens_of_any_bytes_are_shown_as_they_are() {
    let server = Server::start();
    let mut alice = server.client();
    let token = b"\x00\r\n\xff".as_slice();
    let other = b"\xfe\x00".as_slice();
    assert_eq!(alice.call(&[b"LOCK.ACQUIRE".as_slice(), b"door", token]), 1);
    assert_eq!(alice.run("LOCK.INFO door").get("owner"), Reply::Text(token.to_vec()));
    let args = [b"LOCK.ACQUIRE", b"door".as_slice(), other, b"BLOCK", b"0"];
    let _waiter = Waiter::start_on(&server, server.client(), &args);
    let list = alice.run("LOCK.WAITERS door");
    assert_eq!(list.items()[0].get("token"), Reply::Text(other.to_vec()));
}

/// How much the counters of `INFO lock` rise while `act` runs.
#[track_caller]
fn rises(client: &mut Client, counters: &[&str], act: impl FnOnce(&mut Client)) -> Vec<i64> {
    let before: Vec<i64> = counters.iter().map(|name| info_lock(client, name)).collect();
    act(client);
    counters.iter().zip(before).map(|(name, before)| info_lock(client, name) - before).collect()
}

#[test]
fn info_lock_counts_grants_and_refusals() {
    let server = Server::start();
    let mut alice = server.client();
    let counters = ["granted_at_once", "resent", "not_owner_errors"];
    let take = |client: &mut Client| {
        client.run("LOCK.ACQUIRE door alice");
        client.run("LOCK.REENTER gate alice");
    };
    assert_eq!(rises(&mut alice, &counters, take), [2, 0, 0]);
    let repeat = |client: &mut Client| drop(client.run("LOCK.ACQUIRE door alice"));
    assert_eq!(rises(&mut alice, &counters, repeat), [0, 1, 0]);
    let foreign = |client: &mut Client| {
        client.run("LOCK.RELEASE door bob");
        client.run("LOCK.EXTEND door bob PX 9");
    };
    assert_eq!(rises(&mut alice, &counters, foreign), [0, 0, 2]);
    let contended = |client: &mut Client| drop(client.run("LOCK.ACQUIRE door bob"));
    assert_eq!(rises(&mut alice, &counters, contended), [0, 0, 0]);
}

#[test]
fn info_lock_counts_waits_by_how_they_ended() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let counters = ["waiters", "timed_out", "cancelled", "granted_after_waiting"];
    let time_out = |client: &mut Client| drop(client.run("LOCK.ACQUIRE door bob BLOCK 5"));
    assert_eq!(rises(&mut alice, &counters, time_out), [0, 1, 0, 0]);
    let leave = |client: &mut Client| {
        drop(Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0"));
        eventually("bob has left", || waiters_of(client, "door") == 0);
    };
    assert_eq!(rises(&mut alice, &counters, leave), [0, 0, 1, 0]);
    let mut waiting = Vec::new();
    let wait = |_: &mut Client| waiting.push(Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0"));
    assert_eq!(rises(&mut alice, &counters, wait), [1, 0, 0, 0]);
    let hand_over = |client: &mut Client| drop(client.run("LOCK.RELEASE door alice"));
    assert_eq!(rises(&mut alice, &counters, hand_over), [-1, 0, 0, 1]);
}

#[test]
fn info_lock_counts_hand_overs_by_cause() {
    let server = Server::start();
    let mut alice = server.client();
    let counters = ["release", "expiry", "delete", "disconnect", "other"].map(|cause| format!("handovers_{cause}"));
    let counters: Vec<&str> = counters.iter().map(String::as_str).collect();
    for (free, expected) in [
        ("LOCK.RELEASE door alice", [1, 0, 0, 0, 0]),
        ("PEXPIRE door 10", [0, 1, 0, 0, 0]),
        ("DEL door", [0, 0, 1, 0, 0]),
        ("UNLINK door", [0, 0, 1, 0, 0]),
        ("RENAME door elsewhere", [0, 0, 0, 0, 1]),
        ("FLUSHALL", [0, 0, 0, 0, 1]),
    ] {
        assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
        let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        let risen = rises(&mut alice, &counters, |client| {
            assert!(!client.run(free).is_error(), "{free}");
            assert_eq!(bob.reply(), 1, "{free}");
        });
        assert_eq!(risen, expected, "{free}");
        assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
    }
}

#[test]
fn info_lock_counts_waits_by_their_length() {
    let server = Server::start();
    let mut alice = server.client();
    let bounds = ["1", "2", "5", "10", "50", "100", "500", "1000", "10000", "60000", "inf"];
    let counters = bounds.map(|bound| format!("waits_le_{bound}_ms"));
    let counters: Vec<&str> = counters.iter().map(String::as_str).collect();
    let risen = rises(&mut alice, &counters, |client| {
        assert_eq!(client.run("LOCK.ACQUIRE door alice"), 1);
        let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        eventually("bob has waited for 20 ms", || {
            client.run("LOCK.WAITERS door").items().iter().all(|waiter| waiter.get("waited-ms").int() > 20)
        });
        assert_eq!(client.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(bob.reply(), 1);
    });
    assert_eq!(risen.first(), Some(&0), "not within a millisecond: {risen:?}");
    assert_eq!(risen[3], 0, "not within ten: {risen:?}");
    assert_eq!(risen.last(), Some(&1), "the last bucket counts all: {risen:?}");
    assert!(risen.is_sorted(), "the buckets are cumulative: {risen:?}");
}

#[test]
fn the_server_counts_lost_locks_as_errors() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    for (line, code) in [
        ("LOCK.RELEASE gate alice", "NOTHELD"),
        ("LOCK.RELEASE door bob", "NOTOWNER"),
        ("LOCK.EXTEND door alice PX 9", "NOLEASE"),
    ] {
        for times in 1..=2 {
            assert_eq!(alice.run(line).code(), code);
            let count = alice.info("errorstats", &format!("errorstat_{code}"));
            assert_eq!(count, Some(format!("count={times}")), "{line}");
        }
    }
}

#[test]
fn command_info_is_right_for_every_command() {
    let server = Server::start();
    let mut client = server.client();
    let listed = client.run("COMMAND LIST FILTERBY MODULE lock");
    let mut listed: Vec<String> = listed.items().iter().map(Reply::string).collect();
    listed.sort();
    let mut known: Vec<&str> = COMMANDS.iter().map(|command| command.name).collect();
    known.sort_unstable();
    assert_eq!(listed, known);
    for Command { name, arity, flags, keys: expected, .. } in COMMANDS {
        let info = client.run(&format!("COMMAND INFO {name}"));
        let command = info.items()[0].items();
        assert_eq!(command[0], name);
        assert_eq!(command[1], arity, "{name}");
        let mut shown: Vec<String> = command[2].items().iter().map(Reply::string).collect();
        shown.retain(|flag| flag != "module");
        shown.sort();
        assert_eq!(shown, flags, "{name}");
        let keys: Vec<i64> = command[3..6].iter().map(Reply::int).collect();
        let range = match expected.len() {
            0 => [0, 0, 0],
            1 => [1, 1, 1],
            _ => [1, 3, 2],
        };
        assert_eq!(keys, range, "{name}: first key, last key, step");
    }
}

#[test]
fn command_getkeys_finds_the_keys() {
    let server = Server::start();
    let mut client = server.client();
    for command in COMMANDS {
        let Command { name, example, .. } = command;
        let keys = client.run(&format!("COMMAND GETKEYS {name} {example}"));
        if command.keys.is_empty() {
            assert_eq!(keys.error(), "ERR The command has no key arguments", "{name}");
            continue;
        }
        assert_eq!(keys, Reply::list(command.keys.iter().map(|key| Reply::text(key))), "{name}");
        let with_flags = client.run(&format!("COMMAND GETKEYSANDFLAGS {name} {example}"));
        assert_eq!(with_flags.items().len(), command.keys.len(), "{name}");
        for (key, expected) in with_flags.items().iter().zip(command.keys) {
            assert_eq!(key.items()[0], *expected);
            let access = if command.writes() { "RW" } else { "RO" };
            let shown: Vec<String> = key.items()[1].items().iter().map(Reply::string).collect();
            assert!(shown.contains(&access.to_owned()), "{name}: {shown:?}");
            assert!(shown.contains(&"access".to_owned()), "{name} shows who holds: {shown:?}");
        }
    }
}

#[test]
fn command_docs_describe_every_command() {
    let server = Server::start();
    let mut client = server.client();
    for Command { name, example, .. } in COMMANDS {
        let docs = client.run(&format!("COMMAND DOCS {name}")).get(name);
        assert!(docs.get("summary").string().len() > 10, "{name}: {docs:?}");
        assert!(docs.get("complexity").string().starts_with('O'), "{name}: {docs:?}");
        assert_eq!(docs.get("group"), "module", "{name}");
        assert!(!docs.get("since").string().is_empty(), "{name}");
        let mut words = Vec::new();
        collect_words(&docs.get("arguments"), &mut words);
        for word in example.split(' ').filter(|word| word.chars().all(|c| c.is_ascii_lowercase())) {
            assert!(words.contains(&word.to_owned()), "{name} has no argument {word}: {words:?}");
        }
        for option in ["EX", "PX", "BLOCK", "NX", "ADD", "COUNT", "HOLD", "SESSION", "NOTIFY"] {
            let other = if option == "EX" { "PX" } else { "EX" };
            let lease = ["EX", "PX"].contains(&option) && example.contains(other);
            let given = example.split(' ').any(|word| word == option);
            assert_eq!(words.contains(&option.to_owned()), given || lease, "{name}: {option} in {words:?}");
        }
    }
}

/// The names and tokens of arguments and of what is inside them.
fn collect_words(arguments: &Reply, words: &mut Vec<String>) {
    for argument in arguments.items() {
        for (property, value) in argument.pairs() {
            match property.as_str() {
                "name" | "token" => words.push(value.string()),
                "arguments" => collect_words(&value, words),
                _ => {}
            }
        }
    }
}

/// A connection of a user with these rules.
#[track_caller]
fn user(server: &Server, rules: &str) -> Client {
    server.client().ok(&format!("ACL SETUSER guest reset on nopass {rules}"));
    let mut guest = server.client();
    guest.ok("AUTH guest x");
    guest
}

#[test]
fn acl_rules_for_commands_and_keys_hold() {
    let server = Server::start();
    let mut guest = user(&server, "~door* +lock.acquire +lock.release +lock.info");
    assert_eq!(guest.run("LOCK.ACQUIRE door-1 guest"), 1);
    assert_eq!(guest.run("LOCK.RELEASE door-1 guest"), 0);
    assert_eq!(guest.run("LOCK.EXTEND door-1 guest PX 9").code(), "NOPERM", "no such command for it");
    for line in
        ["LOCK.ACQUIRE gate guest", "LOCK.RELEASE gate guest", "LOCK.INFO gate", "LOCK.ACQUIRE gate guest BLOCK 0"]
    {
        assert_eq!(guest.run(line).code(), "NOPERM", "{line}");
    }
    assert_eq!(server.client().run("DBSIZE"), 0);
}

#[test]
fn a_user_who_may_only_read_a_key_may_look_at_its_lock() {
    let server = Server::start();
    let mut guest = user(
        &server,
        "%R~* +lock.acquire +lock.reenter +lock.release +lock.extend +lock.fence +lock.info +lock.waiters",
    );
    assert_eq!(guest.run("LOCK.INFO door").get("state"), "free");
    assert_eq!(guest.run("LOCK.WAITERS door"), Reply::List(vec![]));
    for command in COMMANDS.iter().filter(|command| command.writes()) {
        let Command { name, example, .. } = command;
        assert_eq!(guest.run(&format!("{name} {example}")).code(), "NOPERM", "{name}");
    }
}

#[test]
fn the_lock_category_is_every_command() {
    let server = Server::start();
    if !server.flavour().has_module_acl_categories() {
        assert!(server.client().run("ACL CAT lock").is_error());
        return;
    }
    let mut admin = server.client();
    let by_name = ["write", "read", "blocking", "slow", "admin", "dangerous"].map(|name| (name, Some(name)));
    for (category, member) in [("lock", None)].into_iter().chain(by_name) {
        // Redis 7.4 and Redict leave the commands of modules out of ACL CAT.
        let members = admin.run(&format!("COMMAND LIST FILTERBY ACLCAT {category}"));
        let members: Vec<String> = members.items().iter().map(Reply::string).collect();
        for Command { name, categories, .. } in COMMANDS {
            let expected = member.is_none_or(|member| categories.contains(&member));
            assert_eq!(members.contains(&name.to_owned()), expected, "{name} in @{category}");
        }
    }
    let mut guest = user(&server, "~* +@lock");
    assert_eq!(guest.run("LOCK.ACQUIRE door guest"), 1);
    assert_eq!(guest.run("LOCK.WAITERS door"), Reply::List(vec![]));
    assert_eq!(guest.run("GET door").code(), "NOPERM");
}
