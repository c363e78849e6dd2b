//! LATENCY: the samples of the module in the server's latency monitor.

use std::time::{Duration, Instant};

use support::{Client, Reply, Server, Setup, Waiter, eventually};

const HAND_OVER: &str = "lock-handover";
const BACKGROUND: &str = "lock-background";
/// The server's own event of a slow command that has the flag `fast`, as most commands of the module have.
const COMMAND: &str = "fast-command";

/// The number of patterns of each client. The server looks for a pattern among all others of a client when it is added.
const PATTERNS: usize = 500;

/// The least that the message about a key event takes on a slow server. Each event has two, and a sample may be of a part of a
/// command.
const SLOW: Duration = Duration::from_millis(6);

/// Starts a server on which writes take long, because each of their key events is matched with many patterns. The clients have
/// subscribed to the patterns: as many clients as this machine needs.
fn slow_server() -> (Server, Vec<Client>) {
    let server = Setup::new().config("notify-keyspace-events KEA").start();
    let (mut client, mut subscribers) = (server.client(), vec![]);
    while quickest_message(&mut client) < SLOW {
        subscribers.extend((0..20).map(|_| subscriber(&server)));
    }
    (server, subscribers)
}

fn subscriber(server: &Server) -> Client {
    let mut client = server.client();
    let id = client.run("CLIENT ID").int();
    let patterns = (0..PATTERNS).map(|number| format!("__key*:nobody*{id}-{number}"));
    let words: Vec<String> = ["PSUBSCRIBE".to_owned()].into_iter().chain(patterns).collect();
    client.send(&words);
    (0..PATTERNS).for_each(|_| assert_eq!(client.receive().items()[0], "psubscribe"));
    client
}

/// Other programs can make a message seem slow, but not each of several.
fn quickest_message(client: &mut Client) -> Duration {
    let took = |_| {
        let asked = Instant::now();
        assert_eq!(client.run("PUBLISH __keyspace@0__:door set"), 0);
        asked.elapsed()
    };
    (0..5).map(took).min().expect("some")
}

/// Returns the longest sample of an event, if there is one.
#[track_caller]
fn worst_ms(client: &mut Client, event: &str) -> Option<i64> {
    let latest = client.run("LATENCY LATEST");
    let found = latest.items().iter().find(|entry| entry.items()[0] == event);
    found.map(|entry| entry.items()[3].int())
}

/// Alice takes a lock, for which bob waits, and it is freed by `free`.
#[track_caller]
fn hand_over(server: &Server, client: &mut Client, free: &str) {
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    let mut bob = Waiter::start(server, "LOCK.ACQUIRE door bob PX 600000 BLOCK 0");
    client.run("LATENCY RESET");
    assert!(!client.run(free).is_error());
    assert_eq!(bob.reply(), 1);
    assert_eq!(client.run("LOCK.RELEASE door bob"), 0);
}

#[test]
fn slow_work_of_module_is_a_sample() {
    const RELEASE: &str = "LOCK.RELEASE door alice";
    let (server, _subscribers) = slow_server();
    let mut client = server.client();
    // Redis would store the samples of a module even while the monitor is off.
    for threshold_ms in [1_000_000, 0] {
        client.ok(&format!("CONFIG SET latency-monitor-threshold {threshold_ms}"));
        hand_over(&server, &mut client, RELEASE);
        assert_eq!(client.run("LATENCY LATEST"), Reply::List(vec![]), "below {threshold_ms}");
    }
    client.ok("CONFIG SET latency-monitor-threshold 1");
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    assert_eq!(client.run(RELEASE), 0);
    assert!(worst_ms(&mut client, COMMAND).is_some(), "it does take long");
    assert_eq!(worst_ms(&mut client, HAND_OVER), None, "no lock was handed over");

    hand_over(&server, &mut client, RELEASE);
    assert!(worst_ms(&mut client, HAND_OVER).is_some_and(|ms| ms >= 1));
    assert_eq!(client.run(&format!("LATENCY HISTORY {HAND_OVER}")).items().len(), 1);
    assert!(client.run("LATENCY DOCTOR").string().contains(HAND_OVER));

    hand_over(&server, &mut client, "PEXPIRE door 20");
    for event in [BACKGROUND, HAND_OVER] {
        eventually("the run has ended", || worst_ms(&mut client, event).is_some_and(|ms| ms >= 1));
    }
}
