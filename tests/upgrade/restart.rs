//! A server is restarted with another version, on what it has written.

use std::process::Command;
use std::thread;

use support::parallel::for_each;
use support::{Client, PATIENCE, Protocol, Reply, Waiter, happens_within};
use tempfile::TempDir;

use super::versions::{Version, WAYS, still_holds, take_locks};

/// How a server keeps its data, and how it is shut down for that.
const STORES: [(&str, &str); 2] = [("appendonly yes", "NOSAVE"), ("appendonly no", "SAVE")];

fn restarts((from, to): (Version, Version), (store, shutdown): (&str, &str)) {
    let mut server = from.setup().config(store).start();
    let mut alice = server.client();
    let lease_end = take_locks(&mut alice);
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 600000 BLOCK 0");
    server.shut_down(shutdown);
    assert_eq!(bob.reply(), Reply::Closed);

    let server = to.setup().config(store).in_directory_of(&server).start();
    assert_eq!(Version::of(&server), to);
    let mut alice = server.client();
    still_holds(&mut alice, lease_end);
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 600000 BLOCK 0");
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(bob.reply(), 1);
}

#[test]
fn what_is_held_outlasts_a_restart_with_the_other_version() {
    for_each(&WAYS, |&way| STORES.into_iter().for_each(|store| restarts(way, store)));
}

#[test]
fn the_file_can_be_replaced_as_make_install_does_while_the_server_runs() {
    let folder = TempDir::with_prefix("redis-lock-test-").expect("a temporary folder");
    let file = folder.path().join("redis-lock.so");
    let install = |version: Version| {
        let status = Command::new("install").args(["-m", "755"]).arg(version.module()).arg(&file).status();
        assert!(status.expect("install").success());
    };
    install(Version::Old);
    let setup = Version::Old.setup().module(&file).config("appendonly yes");
    let mut server = setup.start();
    let mut alice = server.client();
    install(Version::New);
    let lease_end = take_locks(&mut alice);
    assert_eq!(Version::of(&server), Version::Old, "what it has loaded");
    server.shut_down("NOSAVE");
    let server = setup.in_directory_of(&server).start();
    assert_eq!(Version::of(&server), Version::New);
    still_holds(&mut server.client(), lease_end);
}

/// What a client is told that asks again and again until it has the lock, each thing once.
fn told(port: u16) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    let has_it = || {
        let Some(mut client) = Client::connect(port, Protocol::Resp2) else { return false };
        let reply = client.run("LOCK.ACQUIRE door alice");
        let what = if reply.is_error() { reply.code().to_owned() } else { format!("{reply:?}") };
        if told.last() != Some(&what) {
            told.push(what);
        }
        reply == 1
    };
    happens_within(PATIENCE, has_it);
    told
}

#[test]
fn clients_are_refused_and_then_told_that_the_server_loads() {
    let store = "appendonly no\nloading-process-events-interval-bytes 1024\nkey-load-delay 1000";
    let mut server = Version::Old.setup().config(store).start();
    server.client().ok("DEBUG POPULATE 300 filler 1000");
    take_locks(&mut server.client());
    let port = server.port();
    server.shut_down("SAVE");
    assert!(Client::connect(port, Protocol::Resp2).is_none(), "nobody listens");
    let told = thread::scope(|scope| {
        let client = scope.spawn(|| told(port));
        let _server = Version::New.setup().config(store).in_directory_of(&server).on_port(port).start();
        client.join().expect("a client that is answered")
    });
    assert_eq!(told, ["LOADING".to_owned(), format!("{:?}", Reply::Int(1))]);
}
