//! The commands as the server describes them, and as its access rules treat them.

use support::{Client, Reply, Server};

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

const COMMANDS: [Command; 10] = [
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
    Command {
        name: "lock.slowlog",
        arity: -2,
        flags: &["admin", "loading", "stale"],
        categories: &["slow", "admin", "dangerous"],
        example: "GET 9",
        keys: &[],
    },
];

impl Command {
    fn writes(&self) -> bool {
        self.flags.contains(&"write")
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
