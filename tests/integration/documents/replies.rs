//! Runs the documentation: each session that README.md and docs/ show is played against a server, and every reply must
//! be the one that is shown.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use support::{Reply, Server, Waiter, repository};

use super::blocks::{blocks_in, every_block};
use super::session::{Step, agree, parse, shown};

/// A connection of a session, and whether it waits.
enum Actor {
    Ready(support::Client),
    Sent(Waiter),
}

/// Plays one session on a server of its own; Err says what differs.
fn play(steps: Vec<Step>) -> Result<(), String> {
    let server = Server::start();
    let mut actors: BTreeMap<String, Actor> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Send { line, who, words } => {
                let client = match actors.remove(&who) {
                    None => server.client(),
                    Some(Actor::Ready(client)) => client,
                    Some(Actor::Sent(_)) => return Err(format!("line {line}: {who} still waits")),
                };
                actors.insert(who, Actor::Sent(Waiter::send_on(&server, client, &words)));
            }
            Step::Waits { line, who } => match actors.get(&who) {
                Some(Actor::Sent(waiter)) if waiter.becomes_blocked() => {}
                Some(Actor::Sent(_)) => return Err(format!("line {line}: {who} does not wait")),
                _ => return Err(format!("line {line}: {who} has sent nothing")),
            },
            Step::Expect { line, who, reply } => {
                let (came, client) = match actors.remove(&who) {
                    Some(Actor::Sent(waiter)) => waiter.into_client(),
                    // A message to one who has subscribed.
                    Some(Actor::Ready(mut client)) => (client.receive(), client),
                    None => return Err(format!("line {line}: {who} has sent nothing")),
                };
                actors.insert(who, Actor::Ready(client));
                let came = shown(&came);
                if !agree(&reply, &came) {
                    return Err(format!("line {line}: shown is\n{}\nbut came\n{}", reply.join("\n"), came.join("\n")));
                }
            }
        }
    }
    Ok(())
}

#[test]
fn every_session_in_the_documentation_answers_as_shown() {
    let mut wrong = Vec::new();
    for block in every_block("redis") {
        if let Err(what) = parse(block.first, &block.lines).and_then(play) {
            wrong.push(format!("{}, {what}", block.document));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn the_readme_shows_a_session() {
    assert!(every_block("redis").iter().any(|block| block.document == "README.md"));
}

#[test]
fn every_command_has_a_page_and_every_page_a_command() {
    let server = Server::start();
    let listed = server.client().run("COMMAND LIST FILTERBY MODULE lock");
    let commands: BTreeSet<String> = listed.items().iter().map(Reply::string).collect();
    let folder = repository().join("docs/commands");
    let pages: BTreeSet<String> = fs::read_dir(&folder)
        .expect("a folder docs/commands")
        .map(|entry| entry.expect("a folder entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .filter_map(|path| path.file_stem().map(|stem| stem.to_string_lossy().to_lowercase()))
        .filter(|stem| !["readme", "index"].contains(&stem.as_str()))
        .collect();
    assert_eq!(pages, commands);
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// Plays a session that is written here.
fn play_text(text: &str) -> Result<(), String> {
    parse(1, &lines(text)).and_then(play)
}

#[test]
fn a_session_is_played_on_one_connection_for_each_name() {
    let text = "\
alice> LOCK.ACQUIRE door \"a token\" PX 30000
(integer) 1
redis> PTTL door
(integer) ~29990                # what remains of the lease
redis> INCRBY sum 104
(integer) 104
redis> GET sum
\"~100\"
redis> SET text \"in 12 days\"
OK
redis> GET text
\"in * days\"
bob> LOCK.REENTER door t2 BLOCK 5000  # he is willing to wait
# bob waits
alice> LOCK.RELEASE door 'a token'
(integer) 0
bob: (integer) 1
alice> LOCK.RELEASE door t1
(error) NOTOWNER Somebody else holds this lock
alice> LOCK.RELEASE door t1
(error) NOTOWNER *
bob> GET nothing
(nil)
bob> CLIENT ID
(integer) *
bob> LOCK.INFO gate
 1) \"state\"
 2) \"free\"
 3) \"owner\"
 4) (nil)
 5) \"holds\"
 6) (integer) 0
 7) \"lease-ms\"
 8) (integer) -1
 9) \"waiters\"
10) (integer) 0
11) \"session\"
12) (empty array)
13) \"recovery-ms\"
14) (integer) 0
";
    assert_eq!(play_text(text), Ok(()));
}

#[test]
fn a_session_that_shows_something_else_is_found() {
    for wrong in [
        "a> LOCK.ACQUIRE door t\n(integer) 2",
        "a> LOCK.ACQUIRE door t\n(nil)",
        "a> LOCK.ACQUIRE door t PX 30000\n(integer) 1\na> PTTL door\n(integer) ~60000",
        "a> LOCK.ACQUIRE door t\n(integer) 1\nb> LOCK.ACQUIRE door t2\n(integer) 1",
        "a> LOCK.RELEASE door t\n(error) NOTOWNER Somebody else holds this lock",
        "a> LOCK.RELEASE door t\n(error) NOTOWNER *",
        "a> LOCK.RELEASE door t\n(error) NOT *",
        "a> LOCK.ACQUIRE door t\n(error) NOTOWNER *",
        "a> PING\nPONG\nPONG",
        "a> PING\n(integer) *",
        "a> GET door\n(integer) ~0",
        "a> GET door\n\"~0\"",
        "a> SET door 120\nOK\na> GET door\n\"~100\"",
        "a> SET door \"in two days\"\nOK\na> GET door\n\"in * days\"",
    ] {
        let found = play_text(wrong).expect_err(wrong);
        assert!(found.contains("but came"), "{wrong}: {found}");
    }
}

#[test]
fn a_block_that_is_no_session_is_found() {
    for wrong in [
        "",
        "# only a remark",
        "a> PING",
        "a> PING\nb> PING\nPONG",
        "(integer) 1",
        "# bob waits",
        "a> PING\n# bob waits",
        "a> GET \"door\n(nil)",
        "a> PING\nPONG\nb: PONG",
    ] {
        let found = parse(1, &lines(wrong)).and_then(play);
        assert!(found.is_err(), "{wrong:?} was taken");
    }
}

#[test]
fn nested_arrays_are_shown_as_redis_cli_does() {
    let inner = Reply::list([Reply::text("a"), Reply::Int(1)]);
    let outer = Reply::list([inner.clone(), Reply::Nil, inner]);
    let expected = "1) 1) \"a\"\n   2) (integer) 1\n2) (nil)\n3) 1) \"a\"\n   2) (integer) 1";
    assert_eq!(shown(&outer).join("\n"), expected);
}

#[test]
fn blocks_are_found_by_their_language() {
    let text = "```sh\nls\n```\n\n```redis\na> PING\nPONG\n```\n\n    ```redis\n    a> PING\n    ```\n";
    let blocks = blocks_in("x.md", text);
    let languages: Vec<&str> = blocks.iter().map(|block| block.language.as_str()).collect();
    assert_eq!(languages, ["sh", "redis", "redis"]);
    assert_eq!(blocks[1].first, 6);
    assert_eq!(blocks[1].lines, ["a> PING", "PONG"]);
    assert_eq!(blocks[2].lines, ["a> PING"], "without the indentation of a list");
}
