//! A message never lands inside a reply, also where it goes to the very client whose command has caused it. Redis 7.0
//! would put it there in a transaction and in an event.

use support::{Client, Library, Protocol, Reply, Server, Setup};

/// A client that speaks RESP3, listens on its channel and waits there for locks that alice holds: doors 0, 1 and 2.
struct Own {
    _server: Server,
    client: Client,
}

const DOORS: i64 = 3;

impl Own {
    #[track_caller]
    fn start(lease: &str) -> Self {
        Self::start_with(&Setup::new(), lease)
    }

    #[track_caller]
    fn start_with(setup: &Setup, lease: &str) -> Self {
        let server = setup.start();
        let (mut alice, mut client) = (server.client(), server.client_speaking(Protocol::Resp3));
        alice.ok("DEBUG SET-ACTIVE-EXPIRE 0");
        client.send(&["SSUBSCRIBE", "news"]);
        assert!(matches!(client.receive(), Reply::Push(_)));
        for number in 0..DOORS {
            assert_eq!(alice.run(&format!("LOCK.ACQUIRE door{number} alice PX 600000")), 1);
            let asked = client.run(&format!("LOCK.ACQUIRE door{number} bob PX 60000 BLOCK 0 NOTIFY news"));
            assert_eq!(asked, Reply::waiting());
        }
        if !lease.is_empty() {
            (0..DOORS).for_each(|number| assert_eq!(alice.run(&format!("PEXPIRE door{number} {lease}")), 1));
        }
        Self { _server: server, client }
    }

    /// Sends it all in one write. Returns the replies and, apart from them, the texts of the messages, of which there are
    /// so many.
    #[track_caller]
    fn run(&mut self, commands: &[&[&str]], messages: usize) -> (Vec<Reply>, Vec<String>) {
        self.client.send_all(commands.iter().copied());
        let (mut replies, mut texts) = (Vec::new(), Vec::new());
        while replies.len() < commands.len() || texts.len() < messages {
            match self.client.receive() {
                Reply::Push(parts) => texts.push(parts[2].string()),
                reply => {
                    assert!(is_whole(&reply), "{commands:?}: {reply:?}, after {replies:?} and {texts:?}");
                    replies.push(reply);
                }
            }
        }
        assert_eq!(self.client.run("PING"), "PONG", "in step");
        // Not all are of one millisecond.
        texts.sort_by_key(|text| text.rsplit(' ').next().map(str::to_owned));
        (replies, texts)
    }

    /// The messages say this of each door.
    #[track_caller]
    fn hears_of_each(texts: &[String], event: &str) {
        assert_eq!(i64::try_from(texts.len()), Ok(DOORS), "{texts:?}");
        for (number, text) in texts.iter().enumerate() {
            assert!(text.starts_with(event) && text.ends_with(&format!(" 0 bob door{number}")), "{text}");
        }
    }
}

fn is_whole(reply: &Reply) -> bool {
    match reply {
        Reply::Push(_) | Reply::Other(_) | Reply::Closed => false,
        Reply::List(items) => items.iter().all(is_whole),
        Reply::Map(pairs) => pairs.iter().all(|(name, value)| is_whole(name) && is_whole(value)),
        _ => true,
    }
}

/// The replies in the reply to EXEC, which is the last.
#[track_caller]
fn of_exec(replies: &[Reply]) -> &[Reply] {
    replies.last().expect("a reply to EXEC").items()
}

const MULTI: &[&str] = &["MULTI"];
const EXEC: &[&str] = &["EXEC"];

#[test]
fn releases_in_a_transaction() {
    let mut own = Own::start("");
    let releases: Vec<[&str; 3]> = ["door0", "door1", "door2"].map(|key| ["LOCK.RELEASE", key, "alice"]).to_vec();
    let mut lines: Vec<&[&str]> = vec![MULTI];
    lines.extend(releases.iter().map(<[&str; 3]>::as_slice));
    lines.extend([&["LOCK.ACQUIRE", "door0", "thief"][..], EXEC]);
    let (replies, texts) = own.run(&lines, 3);
    assert_eq!(of_exec(&replies), [Reply::Int(0), Reply::Int(0), Reply::Int(0), Reply::Nil], "nobody overtakes");
    Own::hears_of_each(&texts, "granted ");
}

#[test]
fn withdrawals_in_a_transaction() {
    let mut own = Own::start("");
    let lines: [&[&str]; 5] = [
        MULTI,
        &["LOCK.RELEASE", "door0", "bob"],
        &["LOCK.RELEASE", "door1", "bob"],
        &["LOCK.RELEASE", "door2", "bob"],
        EXEC,
    ];
    let (replies, texts) = own.run(&lines, 3);
    assert_eq!(of_exec(&replies), [Reply::Nil, Reply::Nil, Reply::Nil]);
    Own::hears_of_each(&texts, "withdrawn 0");
}

#[test]
fn deletes_and_flushes_in_a_transaction() {
    for free in [&["DEL", "door0", "door1", "door2"][..], &["FLUSHALL"]] {
        let mut own = Own::start("");
        let (replies, texts) = own.run(&[MULTI, free, &["LOCK.ACQUIRE", "door1", "thief"], EXEC], 3);
        assert_eq!(of_exec(&replies)[1], Reply::Nil, "nobody overtakes");
        Own::hears_of_each(&texts, "granted ");
    }
}

/// The leases end while the server is busy with the client's first command, so that its next one finds them ended. (In a
/// transaction the time stands still.)
const BUSY: &[&str] = &["DEBUG", "SLEEP", "0.05"];

#[test]
fn keys_that_expire_in_the_middle_of_a_reply() {
    let script = "return {redis.call('GET', KEYS[1]), redis.call('EXISTS', KEYS[2], KEYS[3]), 'x'}";
    let reads: [&[&str]; 4] = [
        &["MGET", "door0", "door1", "other", "door2"],
        &["EVAL", script, "3", "door0", "door1", "door2"],
        &["LOCK.INFO", "door0"],
        &["LOCK.WAITERS", "door0"],
    ];
    for read in reads {
        let mut own = Own::start("20");
        let (replies, texts) = own.run(&[BUSY, read], 3);
        assert!(!replies[1].is_error(), "{read:?}: {replies:?}");
        Own::hears_of_each(&texts, "granted ");
        let mut own = Own::start("20");
        let (replies, texts) = own.run(&[BUSY, MULTI, read, &["LOCK.ACQUIRE", "door0", "thief"], EXEC], 3);
        assert_eq!(of_exec(&replies)[1], Reply::Nil, "nobody overtakes");
        Own::hears_of_each(&texts, "granted ");
    }
}

#[test]
fn releases_in_a_script_and_in_a_function() {
    let body = "local replies = {} \
        for number, key in ipairs(KEYS) do replies[number] = redis.call('LOCK.RELEASE', key, 'alice') end \
        return replies";
    let script = body.to_owned();
    let library = format!("#!lua name=locks\nredis.register_function('free', function(KEYS) {body} end)");
    let eval: &[&str] = &["EVAL", &script, "3", "door0", "door1", "door2"];
    let load: &[&str] = &["FUNCTION", "LOAD", &library];
    let call: &[&str] = &["FCALL", "free", "3", "door0", "door1", "door2"];
    for lines in [&[eval][..], &[load, call], &[MULTI, eval, EXEC], &[load, MULTI, call, EXEC]] {
        let mut own = Own::start("");
        let (replies, texts) = own.run(lines, 3);
        let reply = replies.last().expect("a reply");
        let reply = if lines.contains(&EXEC) { &reply.items()[0] } else { reply };
        assert_eq!(*reply, Reply::list([0, 0, 0].map(Reply::Int)));
        Own::hears_of_each(&texts, "granted ");
    }
}

#[test]
fn releases_and_withdrawals_that_another_module_calls_in_the_middle_of_its_reply() {
    let caller = Library::compile("tests/modules/caller.c");
    let setup = Setup::new().config(&format!("loadmodule {}", caller.path().display()));
    for (token, answer, event) in [("alice", Reply::Int(0), "granted "), ("bob", Reply::Nil, "withdrawn 0")] {
        let mut own = Own::start_with(&setup, "");
        let lines: Vec<String> =
            (0..DOORS).map(|number| format!("CALLER.PAIR LOCK.RELEASE door{number} {token}")).collect();
        let words: Vec<Vec<&str>> = lines.iter().map(|line| line.split(' ').collect()).collect();
        let commands: Vec<&[&str]> = words.iter().map(Vec::as_slice).collect();
        let (replies, texts) = own.run(&commands, 3);
        for reply in &replies {
            assert_eq!(reply.items(), [Reply::Status("first".to_owned()), answer.clone()]);
        }
        Own::hears_of_each(&texts, event);
    }
}

#[test]
fn a_new_role_in_a_transaction() {
    let mut own = Own::start("");
    let (replies, texts) = own.run(&[MULTI, &["REPLICAOF", "127.0.0.1", "1"], &["PING"], EXEC], 3);
    assert_eq!(of_exec(&replies).len(), 2);
    Own::hears_of_each(&texts, "lost 0");
}
