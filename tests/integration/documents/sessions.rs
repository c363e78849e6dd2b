//! Plays the sessions in the documents, each on a server of its own. Every reply must be the one that is shown.
//!
//! ```text
//! alice> LOCK.ACQUIRE door t1 PX 30000
//! (integer) 1
//! bob> LOCK.ACQUIRE door t2 BLOCK 5000
//! # bob waits
//! alice> LOCK.RELEASE door t1
//! (integer) 0
//! bob: (integer) 1
//! ```
//!
//! A name with `>` is a connection and its command; the lines below are the reply, as redis-cli shows it. `# bob waits` stands
//! for a reply that comes later, in lines that begin with `bob: `, as messages do. Any other line that begins with `#`, and
//! what follows two spaces and `# `, is a comment. `~29990` is a number within ten per cent, and `*` any number. `(error) NOPERM *`
//! is any error with that code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use support::{Client, Reply, Server, Waiter, repository};

use super::blocks::{Block, every_block};

/// A step of a session. Those of one connection have its name.
enum Step<'b> {
    Send(&'b str),
    Waits,
    /// The lines of the reply to the last command of the connection, or of a message.
    Receive(Vec<&'b str>),
}

/// A connection; whether the reply to its command is still to come, and may come after the session.
enum Connection {
    Ready(Client),
    Sent(Waiter),
    Waits(Waiter),
}

/// Returns the steps of a block, with the names of their connections.
fn parse(block: &Block) -> Vec<(&str, Step<'_>)> {
    let mut steps: Vec<(&str, Step<'_>)> = Vec::new();
    for line in &block.lines {
        let line = line.split("  # ").next().unwrap_or_default().trim_end();
        let waits = line.strip_prefix("# ").and_then(|line| line.strip_suffix(" waits")).filter(|name| is_name(name));
        let named = |mark| line.split_once(mark).filter(|(name, _)| is_name(name));
        let sender = steps.last().map(|(name, _)| *name);
        let (name, reply) = match (waits, named("> "), named(": ")) {
            (Some(name), ..) => {
                steps.push((name, Step::Waits));
                continue;
            }
            (_, Some((name, command)), _) => {
                steps.push((name, Step::Send(command)));
                continue;
            }
            _ if line.is_empty() || line.starts_with('#') => continue,
            (_, _, Some(named)) => named,
            _ => (sender.unwrap_or_else(|| panic!("{}: a reply to no command: {line}", block.place())), line),
        };
        match steps.last_mut() {
            Some((last, Step::Receive(lines))) if *last == name => lines.push(reply),
            _ => steps.push((name, Step::Receive(vec![reply]))),
        }
    }
    steps
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// Returns the words of a command. Quotes enclose a word with spaces.
fn words(command: &str) -> Vec<&str> {
    let parts = command.split('"').enumerate();
    parts.flat_map(|(at, part)| if at % 2 == 1 { vec![part] } else { part.split_whitespace().collect() }).collect()
}

/// Plays the session of a block.
///
/// # Errors
///
/// The first reply that differs, or the first command without a reply.
fn play(block: &Block) -> Result<(), String> {
    let server = Server::start();
    let mut connections: BTreeMap<&str, Connection> = BTreeMap::new();
    for (name, step) in parse(block) {
        let connection = connections.remove(name).unwrap_or_else(|| Connection::Ready(server.client()));
        let next = match (step, connection) {
            (Step::Send(command), Connection::Ready(client)) => {
                Connection::Sent(Waiter::send_on(&server, client, &words(command)))
            }
            (Step::Send(command), _) => return Err(format!("{name} has no reply before {command}")),
            (Step::Waits, Connection::Sent(waiter)) if waiter.becomes_blocked() => Connection::Waits(waiter),
            (Step::Waits, _) => return Err(format!("{name} does not wait")),
            (Step::Receive(expected), connection) => {
                let (reply, client) = match connection {
                    Connection::Sent(waiter) | Connection::Waits(waiter) => waiter.into_client(),
                    Connection::Ready(mut client) => (client.receive(), client),
                };
                let shown = shown(&reply);
                let agrees = expected.len() == shown.len() && expected.iter().zip(&shown).all(|(a, b)| agrees(a, b));
                if !agrees {
                    return Err(format!("{name} receives\n{}\nnot\n{}", shown.join("\n"), expected.join("\n")));
                }
                Connection::Ready(client)
            }
        };
        connections.insert(name, next);
    }
    let unread = connections.into_iter().find(|(_, connection)| matches!(connection, Connection::Sent(_)));
    unread.map_or(Ok(()), |(name, _)| Err(format!("no reply is shown to {name}")))
}

/// Returns the lines in which redis-cli shows a reply.
fn shown(reply: &Reply) -> Vec<String> {
    match reply {
        Reply::Nil => vec!["(nil)".to_owned()],
        Reply::Int(number) => vec![format!("(integer) {number}")],
        // The only character that Rust escapes and redis-cli does not.
        Reply::Text(bytes) => vec![format!("\"{}\"", bytes.escape_ascii()).replace("\\'", "'")],
        Reply::Status(text) => vec![text.clone()],
        Reply::Error(line) => vec![format!("(error) {line}")],
        Reply::List(items) if items.is_empty() => vec!["(empty array)".to_owned()],
        Reply::List(items) => (1..).zip(items).flat_map(|(number, item)| numbered(number, item, items.len())).collect(),
        Reply::Map(_) | Reply::Push(_) | Reply::Other(_) | Reply::Closed => vec![format!("{reply:?}")],
    }
}

/// Returns the lines of an item of an array. The lines below the first are indented like it.
fn numbered(number: usize, item: &Reply, count: usize) -> Vec<String> {
    let width = count.to_string().len();
    let mut prefix = format!("{number:>width$}) ");
    let lines = shown(item).into_iter().map(|line| {
        let line = prefix.clone() + &line;
        prefix = " ".repeat(prefix.len());
        line
    });
    lines.collect()
}

fn agrees(expected: &str, line: &str) -> bool {
    if let Some(code) = expected.strip_suffix('*').filter(|code| code.starts_with("(error) ")) {
        return line.starts_with(code);
    }
    let [expected, words] = [expected, line].map(|line| line.split_whitespace().collect::<Vec<_>>());
    expected.len() == words.len() && expected.iter().zip(&words).all(|(expected, word)| word_agrees(expected, word))
}

fn word_agrees(expected: &str, word: &str) -> bool {
    let number = |word: &str| word.trim_matches('"').parse::<i64>().ok();
    match expected.trim_matches('"') {
        "*" => number(word).is_some(),
        about if about.starts_with('~') => {
            number(&about[1..]).zip(number(word)).is_some_and(|(about, number)| (number - about).abs() * 10 <= about)
        }
        _ => expected == word,
    }
}

#[test]
fn every_session_of_the_documents_replies_as_shown() {
    let blocks = every_block("redis");
    assert!(blocks.iter().any(|block| block.document == "README.md"), "README.md shows a session");
    let wrong = |block: &Block| play(block).err().map(|problem| format!("{}: {problem}", block.place()));
    let wrong: Vec<String> = blocks.iter().filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_command_has_a_page() {
    let server = Server::start();
    let listed = server.client().run("COMMAND LIST FILTERBY MODULE lock");
    let commands: BTreeSet<String> = listed.items().iter().map(Reply::string).collect();
    let pages = fs::read_dir(repository().join("docs/commands")).expect("docs/commands");
    let pages = pages.map(|entry| entry.expect("an entry").path());
    let pages = pages.map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned());
    let pages: BTreeSet<String> = pages.filter(|name| name != "README").collect();
    assert_eq!(pages, commands);
}

#[test]
fn wrong_session_is_found() {
    for wrong in [
        "a> LOCK.ACQUIRE door t\n(integer) 2",
        "a> LOCK.ACQUIRE door t PX 30000\n(integer) 1\na> PTTL door\n(integer) ~60000",
        "a> LOCK.RELEASE door t\n(error) NOTOWNER *",
        "a> PING\nPONG\nPONG",
        "a> PING\n(integer) *",
        "a> PING",
        "a> PING\n# a waits",
        "a> LOCK.INFO door\n1) \"state\"",
    ] {
        let lines = wrong.lines().map(str::to_owned).collect();
        let block = Block { document: "here".to_owned(), first: 1, language: "redis".to_owned(), lines };
        play(&block).expect_err(wrong);
    }
}
