//! Who hears of the module's own writes: clients that ask for key events, and other modules, whenever they came.

use std::path::Path;

use support::{Client, Library, Reply, Server, Setup, Waiter, eventually, info_lock, module_under_test};

/// A life of locks: what is done, and the events that it causes.
const LIFE: [(&str, &[&str]); 13] = [
    ("LOCK.ACQUIRE door alice PX 30000", &["set door", "expire door"]),
    ("LOCK.ACQUIRE door alice", &[]),
    ("LOCK.ACQUIRE door alice PX 40000", &["expire door"]),
    ("LOCK.EXTEND door alice PX 50000", &["expire door"]),
    ("LOCK.FENCE door alice counter", &["set counter"]),
    ("LOCK.RELEASE door alice", &["del door"]),
    ("LOCK.ACQUIRE door alice", &["set door"]),
    ("LOCK.RELEASE door alice", &["del door"]),
    ("LOCK.REENTER door alice PX 30000", &["hset door", "expire door"]),
    ("LOCK.REENTER door alice", &["hset door"]),
    ("LOCK.EXTEND door alice PX 50000", &["expire door"]),
    ("LOCK.RELEASE door alice", &["hset door"]),
    ("LOCK.RELEASE door alice", &["del door"]),
];

/// How a lock is taken, and the event of it.
const TAKE: [(&str, &str); 2] = [("LOCK.ACQUIRE", "set door"), ("LOCK.REENTER", "hset door")];

/// What somebody does to a lock that alice holds, and the events of it, before the first in line is served.
const FREE: [(&str, &[&str]); 3] = [
    ("LOCK.RELEASE door alice", &[]),
    ("DEL door", &["del door"]),
    ("PEXPIRE door 20", &["expire door", "expired door"]),
];

/// A client that subscribes to all key events; each call answers what it has heard since the last, as `event key`.
pub(super) fn subscriber(server: &Server) -> impl FnMut() -> Vec<String> {
    let (mut subscriber, mut publisher) = (server.client(), server.client());
    subscriber.run("PSUBSCRIBE __keyevent@0__:*");
    move || {
        // Published last, so that everything else has come before it.
        publisher.run("PUBLISH __keyevent@0__:end events");
        let event = |message: &[Reply]| message[2].string().replace("__keyevent@0__:", "") + " " + &message[3].string();
        let events = std::iter::from_fn(|| Some(event(subscriber.receive().items())));
        events.take_while(|event| event != "end events").collect()
    }
}

/// The same for the module in tests/modules/listener.c.
fn listener(server: &Server) -> impl FnMut() -> Vec<String> {
    let mut client = server.client();
    move || client.run("LISTENER.HEARD").items().iter().map(Reply::string).collect()
}

fn listener_module() -> Library {
    Library::compile("tests/modules/listener.c")
}

fn loadmodule(path: &Path) -> String {
    format!("loadmodule {}", path.display())
}

#[track_caller]
fn load(client: &mut Client, path: &Path) {
    assert_eq!(client.call(&["MODULE", "LOAD", &path.display().to_string()]), "OK");
}

/// Of all that happens in the life of a lock, these events are heard, and no others.
#[track_caller]
fn hears(server: &Server, mut heard: impl FnMut() -> Vec<String>, is_heard: impl Fn(&str) -> bool) {
    let mut alice = server.client();
    for (line, events) in LIFE {
        assert!(!alice.run(line).is_error(), "{line}");
        let expected: Vec<&str> = events.iter().copied().filter(|event| is_heard(event)).collect();
        assert_eq!(heard(), expected, "{line}");
    }
}

#[track_caller]
fn hears_everything(server: &Server, heard: impl FnMut() -> Vec<String>) {
    hears(server, heard, |_| true);
}

/// Each hand-over grants the lock to one waiter, is heard of once, and is counted by its cause and by no other.
#[track_caller]
fn hands_over_once(server: &Server, mut heard: impl FnMut() -> Vec<String>) {
    let mut alice = server.client();
    for (take, taken) in TAKE {
        for (free, freed) in FREE {
            assert_eq!(alice.run(&format!("{take} door alice PX 60000")), 1);
            let [mut bob, mut carol] =
                ["bob", "carol"].map(|name| Waiter::start(server, &format!("{take} door {name} PX 60000 BLOCK 0")));
            heard();
            alice.run(free);
            assert_eq!(bob.reply(), 1, "{take}, {free}");
            assert_eq!(heard(), [freed, &[taken, "expire door"]].concat(), "{take}, {free}");

            assert!(alice.run("LOCK.EXTEND door bob PX 50000") != 0);
            assert_eq!(heard(), ["expire door"], "{take}");
            assert!(carol.is_blocked(), "{take}, {free}: only one is served");

            assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
            assert_eq!(carol.reply(), 1, "{take}");
            assert_eq!(alice.run("LOCK.RELEASE door carol"), 0);
            assert_eq!(heard(), [taken, "expire door", "del door"], "{take}");
        }
    }
    let by_cause = ["release", "delete", "expiry", "disconnect", "other"];
    // From alice to bob in three ways, and from bob to carol each time by a release.
    assert_eq!(by_cause.map(|cause| info_lock(&mut alice, &format!("handovers_{cause}"))), [8, 2, 2, 0, 0]);
}

#[test]
fn subscriber_hears_events_of_the_setting() {
    let server = Server::start();
    for (setting, events) in [
        ("EA", &["set", "hset", "expire", "del"][..]),
        ("E$", &["set"]),
        ("Eh", &["hset"]),
        ("Eg", &["expire", "del"]),
        ("Exe", &[]),
        ("", &[]),
        ("Eg$", &["set", "expire", "del"]),
    ] {
        assert_eq!(server.client().call(&["CONFIG", "SET", "notify-keyspace-events", setting]), "OK");
        hears(&server, subscriber(&server), |event| events.iter().any(|name| event.starts_with(&format!("{name} "))));
    }
}

#[test]
fn module_loaded_before_hears_every_write() {
    let module = listener_module();
    let lines = [module.path(), module_under_test()].map(|path| loadmodule(&path)).join("\n");
    let server = Setup::new().without_module().config(&lines).start();
    hears_everything(&server, listener(&server));
    let mut client = server.client();
    eventually("those who have asked for locks have left", || client.run("MODULE UNLOAD lock") == "OK");
    load(&mut server.client(), &module_under_test());
    hears_everything(&server, listener(&server));
}

#[test]
fn unlisted_module_hears_every_write() {
    let module = listener_module();
    let lines = [module.path(), module_under_test()].map(|path| loadmodule(&path)).join("\n");
    let server = Setup::new().without_module().config("rename-command INFO \"\"").config(&lines).start();
    hears_everything(&server, listener(&server));
}

#[test]
fn module_loaded_after_hears_every_write() {
    let module = listener_module();
    let server = Setup::new().config(&loadmodule(&module.path())).start();
    hears_everything(&server, listener(&server));
}

#[test]
fn module_loaded_twice_at_run_time_hears_every_write() {
    let module = listener_module();
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(client.run("LOCK.RELEASE door alice"), 0);
    for _ in 0..2 {
        load(&mut client, &module.path());
        hears_everything(&server, listener(&server));
        client.ok("MODULE UNLOAD listener");
    }
}

#[test]
fn module_hears_every_write_without_events() {
    let module = listener_module();
    let lines = format!("notify-keyspace-events E$\n{}", loadmodule(&module.path()));
    let server = Setup::new().config(&lines).start();
    hears_everything(&server, listener(&server));
    hears(&server, subscriber(&server), |event| event.starts_with("set "));
}

#[test]
fn hand_over_heard_by_subscriber_is_one() {
    let server = Setup::new().config("notify-keyspace-events EA").start();
    hands_over_once(&server, subscriber(&server));
}

#[test]
fn hand_over_heard_by_module_is_one() {
    let module = listener_module();
    let server = Setup::new().config(&loadmodule(&module.path())).start();
    hands_over_once(&server, listener(&server));
}
