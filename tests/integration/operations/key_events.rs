//! Which key events each LOCK command raises, for clients (`notify-keyspace-events`) and for other modules: each event once.
//!
//! The server raises none for the writes of a module, so the module raises them. Valkey may come to do so by itself
//! (valkey-io/valkey#4592), and each event would come twice then.

use support::{Client, Library, Reply, Server, Setup, Waiter, eventually, module_under_test};

/// More bytes than the server stores in the header of an object, which are written by another function.
const LONG: &str = "a-token-that-is-longer-than-what-fits-into-a-header";

/// Commands in their order, with the events of each. A lock is named by the first letter of its form.
const COMMANDS: [(&str, &[&str]); 42] = [
    ("LOCK.ACQUIRE m a", &["set m"]),
    ("LOCK.ACQUIRE m a PX 30000", &[]),
    ("LOCK.RELEASE m a", &["del m"]),
    ("LOCK.ACQUIRE m a PX 30000", &["set m", "expire m"]),
    ("LOCK.ACQUIRE m a PX 20000", &[]),
    ("LOCK.ACQUIRE m a PX 60000", &["expire m"]),
    ("LOCK.ACQUIRE m a NX", &[]),
    ("LOCK.ACQUIRE m b PX 90000", &[]),
    ("LOCK.EXTEND m a PX 50000", &["expire m"]),
    ("LOCK.EXTEND m a PX 50000 ADD", &["expire m"]),
    ("LOCK.FENCE m a counter", &["set counter"]),
    ("PEXPIRE counter 60000", &["expire counter"]),
    ("LOCK.FENCE m a counter", &["set counter"]),
    ("LOCK.INFO m", &[]),
    ("LOCK.RELEASE m a HOLD 1", &["del m"]),
    ("LOCK.ACQUIRE m a PX 30000 SESSION", &["set m", "expire m"]),
    ("LOCK.RELEASE m a", &["del m"]),
    ("LOCK.RELEASE m a", &[]),
    ("LOCK.REENTER r a", &["hset r"]),
    ("LOCK.RELEASE r a", &["del r"]),
    ("LOCK.REENTER r a PX 30000", &["hset r", "expire r"]),
    ("LOCK.REENTER r a HOLD 1", &[]),
    ("LOCK.REENTER r a HOLD 2 PX 60000", &["hset r", "expire r"]),
    ("LOCK.REENTER r b PX 90000", &[]),
    ("LOCK.EXTEND r a PX 50000", &["expire r"]),
    ("LOCK.FENCE r a counter", &["set counter"]),
    ("LOCK.RELEASE r a HOLD 2 PX 90000", &["hset r", "expire r"]),
    ("LOCK.RELEASE r a", &["del r"]),
    ("LOCK.SHARE s a PX 30000", &["zadd s", "expire s"]),
    ("LOCK.SHARE s a PX 20000", &[]),
    ("LOCK.SHARE s b PX 20000", &["zadd s"]),
    ("LOCK.SHARE s b PX 25000", &["zadd s"]),
    ("LOCK.SHARE s c LIMIT 2 PX 30000", &[]),
    ("LOCK.SHARE s c", &["zadd s", "persist s"]),
    ("LOCK.FENCE s c counter", &["set counter"]),
    ("LOCK.RELEASE s c", &["zrem s", "expire s"]),
    ("LOCK.EXTEND s a PX 90000", &["zadd s", "expire s"]),
    ("LOCK.RELEASE s a", &["zrem s", "expire s"]),
    ("LOCK.RELEASE s b", &["zrem s", "del s"]),
    ("LOCK.SHARE s a PX 30000 SESSION", &["zadd s", "expire s"]),
    ("LOCK.RELEASE s a", &["zrem s", "del s"]),
    ("LOCK.RELEASE s a", &[]),
];

/// How each form is taken, with the events of a grant and of a release.
const FORMS: [(&str, &str, &[&str]); 3] = [
    ("LOCK.ACQUIRE", "set door", &["del door"]),
    ("LOCK.REENTER", "hset door", &["del door"]),
    ("LOCK.SHARE", "zadd door", &["zrem door", "del door"]),
];

/// Both kinds of listeners: a client that has subscribed to all key events, and the module tests/modules/listener.c.
struct Listeners {
    subscriber: Client,
    other: Client,
}

impl Listeners {
    fn start() -> (Server, Self) {
        let server = Setup::new().config("notify-keyspace-events KEA").config(&loadmodule(&listener())).start();
        let mut subscriber = server.client();
        subscriber.run("PSUBSCRIBE __keyevent@0__:*");
        let other = server.client();
        (server, Self { subscriber, other })
    }

    /// Returns the events since the last call, as `event key`. Both listeners have heard the same.
    #[track_caller]
    fn heard(&mut self) -> Vec<String> {
        // Published last, so that everything else has come before it.
        self.other.run("PUBLISH __keyevent@0__:end events");
        let event = |message: &[Reply]| message[2].string().replace("__keyevent@0__:", "") + " " + &message[3].string();
        let events = std::iter::from_fn(|| Some(event(self.subscriber.receive().items())));
        let events: Vec<String> = events.take_while(|event| event != "end events").collect();
        assert_eq!(by_module(&mut self.other), events, "the module has heard of other events than the client");
        events
    }

    #[track_caller]
    fn raised(&mut self, what: &str, expected: &[&str]) {
        let mut events = self.heard();
        let count = events.len();
        assert_eq!(events, expected, "{what}");
        events.dedup();
        assert_eq!(events.len(), count, "{what}: does the server raise them, too (valkey-io/valkey#4592)?");
    }
}

/// Returns what the other module has heard since the last call.
fn by_module(client: &mut Client) -> Vec<String> {
    client.run("LISTENER.HEARD").items().iter().map(Reply::string).collect()
}

fn listener() -> Library {
    Library::compile("tests/modules/listener.c")
}

fn loadmodule(module: &Library) -> String {
    format!("loadmodule {}", module.path().display())
}

#[test]
fn command_raises_each_event_once() {
    let (server, mut listeners) = Listeners::start();
    let mut client = server.client();
    for token in ["a", LONG] {
        for (line, expected) in COMMANDS {
            client.run(&line.replace(" a", &format!(" {token}")));
            listeners.raised(line, expected);
        }
        client.run("DEL counter");
        listeners.heard();
    }
}

#[test]
fn hand_over_between_forms_raises_each_event_once() {
    let (server, mut listeners) = Listeners::start();
    let mut alice = server.client();
    for (held, _, released) in FORMS {
        for (wanted, granted, _) in FORMS {
            for free in ["LOCK.RELEASE door alice", "DEL door"] {
                // A release lets the grant overwrite a mutex and a re-entrant lock. The last share leaves first.
                let removed: &[&str] = match (free, held) {
                    ("DEL door", _) => &["del door"],
                    (_, "LOCK.SHARE") => released,
                    _ => &[],
                };
                let what = format!("{free}, from {held} to {wanted}");
                assert_eq!(alice.run(&format!("{held} door alice PX 60000")), 1);
                // With a limit, because bob would not wait otherwise.
                let limit = if wanted == "LOCK.SHARE" { "LIMIT 1" } else { "" };
                let mut bob = Waiter::start(&server, &format!("{wanted} door bob PX 60000 BLOCK 0 {limit}"));
                listeners.heard();
                assert!(!alice.run(free).is_error());
                assert_eq!(bob.reply(), 1, "{what}");
                listeners.raised(&what, &[removed, &[granted, "expire door"]].concat());
                assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
                listeners.heard();
            }
        }
    }
}

#[test]
fn closed_session_raises_each_event_once() {
    let (server, mut listeners) = Listeners::start();
    let mut observer = server.client();
    for (take, taken, released) in FORMS {
        let mut alice = server.client();
        assert_eq!(alice.run(&format!("{take} door alice PX 60000 SESSION")), 1);
        listeners.raised(take, &[taken, "expire door"]);
        drop(alice);
        eventually("the lock is free", || observer.run("EXISTS door") == 0);
        listeners.raised(&format!("end of the session of {take}"), released);
    }
}

/// The module asks the server which other modules there are. Where it cannot, there may be listeners.
#[test]
fn other_module_hears_every_write() {
    let listener = listener();
    let load = loadmodule(&listener);
    let lock = format!("loadmodule {}", module_under_test().display());
    let plain = Setup::new().without_module();
    for (what, setup) in [
        ("before", plain.clone().config(&load).config(&lock)),
        ("before, and not listed", plain.config("rename-command INFO \"\"").config(&load).config(&lock)),
        ("after", Setup::new().config(&load)),
        ("at run time", Setup::new()),
    ] {
        let server = setup.start();
        let mut client = server.client();
        if what == "at run time" {
            client.ok(&load.replace("loadmodule", "MODULE LOAD"));
        }
        assert_eq!(client.run("LOCK.ACQUIRE door alice PX 30000"), 1);
        assert_eq!(client.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(by_module(&mut client), ["set door", "expire door", "del door"], "a module loaded {what}");
    }
}

#[test]
fn client_hears_events_of_setting() {
    let server = Server::start();
    let (mut alice, mut subscriber) = (server.client(), server.client());
    subscriber.run("PSUBSCRIBE __keyevent@0__:*");
    for (setting, events) in [("Eg$", &["set", "expire", "del"][..]), ("E$", &["set"]), ("Exe", &[]), ("", &[])] {
        assert_eq!(alice.call(&["CONFIG", "SET", "notify-keyspace-events", setting]), "OK");
        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 30000"), 1);
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
        alice.run("PUBLISH __keyevent@0__:end door");
        for event in events.iter().chain(&["end"]) {
            assert_eq!(subscriber.receive().items()[2].string(), format!("__keyevent@0__:{event}"), "{setting}");
        }
    }
}
