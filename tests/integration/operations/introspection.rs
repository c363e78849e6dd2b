//! The commands as the server describes them.

use redis_lock::command::options::OPTION_TABLE;
use redis_lock::command::words_of_commands;
use support::{Client, Reply, Server};

/// Each command: arity, flags, ACL categories, and arguments with every option that the command has. The keys are named `key` and
/// `counter`.
const COMMANDS: &str = "
    lock.acquire | -3 | blocking denyoom fast write | write blocking | key token PX 9 BLOCK 0 NX SESSION NOTIFY channel
    lock.reenter | -3 | blocking denyoom fast write | write blocking | key owner EX 9 BLOCK 0 HOLD 1 SESSION NOTIFY channel
    lock.share | -3 | blocking denyoom fast write | write blocking | key token EX 9 LIMIT 3 BLOCK 0 SESSION NOTIFY channel
    lock.release | -3 | fast write | write | key token PX 9 HOLD 1
    lock.extend | -5 | fast write | write | key token PX 9 ADD
    lock.fence | 4 | denyoom fast write | write | key token counter
    lock.info | 2 | fast readonly | read | key
    lock.waiters | -2 | readonly | read slow | key COUNT 9
    lock.queues | -1 | admin readonly | read slow admin dangerous | COUNT 9
    lock.slowlog | -2 | admin loading stale | slow admin dangerous | GET 9";

struct Command {
    name: &'static str,
    arity: i64,
    flags: &'static str,
    categories: &'static str,
    example: &'static str,
    keys: Vec<&'static str>,
}

fn commands() -> Vec<Command> {
    let command = |line: &'static str| {
        let [name, arity, flags, categories, example] = line.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let keys = example.split(' ').filter(|word| ["key", "counter"].contains(word)).collect();
        Command { name: name.trim(), arity: arity.parse().expect("a number"), flags, categories, example, keys }
    };
    COMMANDS.trim().lines().map(command).collect()
}

fn strings(reply: &Reply) -> Vec<String> {
    let mut strings: Vec<String> = reply.items().iter().map(Reply::string).collect();
    strings.sort();
    strings
}

#[test]
fn command_info_is_right_for_every_command() {
    let server = Server::start();
    let mut client = server.client();
    let mut names: Vec<&str> = commands().iter().map(|command| command.name).collect();
    names.sort_unstable();
    assert_eq!(strings(&client.run("COMMAND LIST FILTERBY MODULE lock")), names);
    for Command { name, arity, flags, keys, .. } in commands() {
        let info = client.run(&format!("COMMAND INFO {name}"));
        let command = info.items()[0].items();
        assert_eq!((&command[0], &command[1]), (&Reply::text(name), &Reply::Int(arity)));
        let mut shown = strings(&command[2]);
        shown.retain(|flag| flag != "module");
        assert_eq!(shown.join(" "), flags, "{name}");
        let range: Vec<i64> = command[3..6].iter().map(Reply::int).collect();
        assert_eq!(range, [[0, 0, 0], [1, 1, 1], [1, 3, 2]][keys.len()], "{name}: first key, last key, step");
    }
}

#[test]
fn command_getkeys_finds_the_keys() {
    let server = Server::start();
    let mut client = server.client();
    for Command { name, flags, example, keys, .. } in commands() {
        let shown = client.run(&format!("COMMAND GETKEYSANDFLAGS {name} {example}"));
        if keys.is_empty() {
            assert_eq!(shown.error(), "ERR The command has no key arguments", "{name}");
            continue;
        }
        let found: Vec<String> = shown.items().iter().map(|key| key.items()[0].string()).collect();
        assert_eq!(found, keys, "{name}");
        for key in shown.items() {
            let uses = strings(&key.items()[1]);
            let access = if flags.contains("write") { "RW" } else { "RO" };
            assert!(["access", access].iter().all(|&flag| uses.contains(&flag.to_owned())), "{name}: {uses:?}");
        }
    }
}

#[test]
fn command_docs_describe_every_command() {
    let server = Server::start();
    let mut client = server.client();
    for Command { name, example, .. } in commands() {
        let docs = client.run(&format!("COMMAND DOCS {name}")).get(name);
        assert!(docs.get("summary").string().len() > 10, "{name}: {docs:?}");
        assert!(docs.get("complexity").string().starts_with('O'), "{name}: {docs:?}");
        assert_eq!(docs.get("group"), "module", "{name}");
        assert!(!docs.get("since").string().is_empty(), "{name}");
        let mut words = Vec::new();
        collect_words(&docs.get("arguments"), &mut words);
        let is_listed = |word: &str| words.contains(&word.to_owned());
        let named = example.split(' ').filter(|word| word.chars().all(|c| c.is_ascii_lowercase()));
        named.for_each(|word| assert!(is_listed(word), "{name} has no argument {word}: {words:?}"));
        let options: Vec<&str> =
            words_of_commands().filter(|(command, _)| *command == name).map(|(_, word)| word).collect();
        for word in OPTION_TABLE.iter().map(|row| row.word.to_str().expect("a word")) {
            assert_eq!(is_listed(word), options.contains(&word), "{name}: {word} in {words:?}");
        }
    }
}

/// Collects the names and the option words of arguments, also of nested arguments.
fn collect_words(arguments: &Reply, words: &mut Vec<String>) {
    for (property, value) in arguments.items().iter().flat_map(Reply::pairs) {
        match property.as_str() {
            "name" | "token" => words.push(value.string()),
            "arguments" => collect_words(&value, words),
            _ => {}
        }
    }
}

/// Returns the commands in an ACL category. Redis 7.4 and Redict leave the commands of modules out of ACL CAT.
fn members(client: &mut Client, category: &str) -> Vec<String> {
    strings(&client.run(&format!("COMMAND LIST FILTERBY ACLCAT {category}")))
}

#[test]
fn acl_categories_contain_their_commands() {
    let server = Server::start();
    let mut admin = server.client();
    if !server.flavour().has_module_acl_categories() {
        assert!(admin.run("ACL CAT lock").is_error());
        return;
    }
    for category in ["lock", "write", "read", "blocking", "slow", "admin", "dangerous"] {
        let members = members(&mut admin, category);
        for Command { name, categories, .. } in commands() {
            let expected = category == "lock" || categories.split(' ').any(|it| it == category);
            assert_eq!(members.contains(&name.to_owned()), expected, "{name} in @{category}");
        }
    }
}
