//! LATENCY: what the server's latency monitor gets to see of the module.

use std::time::{Duration, Instant};

use support::{Aof, Client, Reply, Server, Setup, Waiter, eventually};

const HAND_OVER: &str = "lock-handover";
const BACKGROUND: &str = "lock-background";
/// What the server itself tells of a command that it holds for fast, as all of ours.
const COMMAND: &str = "fast-command";

/// Each client listens to so many patterns. The server looks for a pattern among all others of a client when it is added.
const PATTERNS: usize = 500;

/// The least that the message about a key event takes on a slow server; each event has two. What the monitor is told of is
/// often only a part of a command.
const SLOW: Duration = Duration::from_millis(6);

/// A server on which writes take long, because each of their key events is matched with many patterns. The clients are
/// those that have subscribed to them: as many as this machine needs.
fn slow(setup: &Setup) -> (Server, Vec<Client>) {
    let server = setup.clone().config("notify-keyspace-events KEA").start();
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

/// Other programs can make a message seem slow, but not each of several. The AOF is told nothing of it.
fn quickest_message(client: &mut Client) -> Duration {
    let took = |_| {
        let asked = Instant::now();
        assert_eq!(client.run("PUBLISH __keyspace@0__:door set"), 0);
        asked.elapsed()
    };
    (0..5).map(took).min().expect("some")
}

/// A server like that whose latency monitor takes everything from this many milliseconds on.
fn monitored(threshold_ms: u32) -> (Server, Client, Vec<Client>) {
    let (server, subscribers) = slow(&Setup::new().config(&format!("latency-monitor-threshold {threshold_ms}")));
    let client = server.client();
    (server, client, subscribers)
}

/// The longest sample of an event of the latency monitor, if there is one.
#[track_caller]
fn worst_ms(client: &mut Client, event: &str) -> Option<i64> {
    let latest = client.run("LATENCY LATEST");
    let found = latest.items().iter().find(|entry| entry.items()[0] == event);
    found.map(|entry| entry.items()[3].int())
}

/// Alice's lock goes on to bob.
#[track_caller]
fn hand_over(server: &Server, client: &mut Client) {
    assert_eq!(client.run("LOCK.ACQUIRE door alice"), 1);
    let mut bob = Waiter::start(server, "LOCK.ACQUIRE door bob PX 600000 BLOCK 0");
    assert_eq!(client.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(bob.reply(), 1);
    assert_eq!(client.run("LOCK.RELEASE door bob"), 0);
}

#[test]
fn slow_hand_over_is_a_sample() {
    let (server, mut client, _subscribers) = monitored(1);
    for _ in 0..3 {
        assert_eq!(client.run("LOCK.ACQUIRE door alice PX 600000"), 1);
        assert_eq!(client.run("LOCK.RELEASE door alice"), 0);
    }
    assert!(worst_ms(&mut client, COMMAND).is_some(), "they do take long");
    assert_eq!(worst_ms(&mut client, HAND_OVER), None);
    hand_over(&server, &mut client);
    assert!(worst_ms(&mut client, HAND_OVER).is_some_and(|ms| ms >= 1));
    assert_eq!(client.run(&format!("LATENCY HISTORY {HAND_OVER}")).items().len(), 1);
    assert!(client.run("LATENCY DOCTOR").string().contains(HAND_OVER));
}

#[test]
fn slow_background_work_is_a_sample() {
    let (server, mut client, _subscribers) = monitored(1);
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 600000 BLOCK 0");
    client.run("LATENCY RESET");
    assert_eq!(client.run("PEXPIRE door 20"), 1);
    assert_eq!(bob.reply(), 1);
    for event in [BACKGROUND, HAND_OVER] {
        eventually("the run has ended", || worst_ms(&mut client, event).is_some_and(|ms| ms >= 1));
    }
}

/// Redis would store the samples of a module even while the monitor is off.
#[test]
fn quicker_event_and_disabled_monitor_have_no_sample() {
    for threshold_ms in [1_000_000, 0] {
        let (server, mut client, _subscribers) = monitored(threshold_ms);
        hand_over(&server, &mut client);
        assert_eq!(client.run("LATENCY LATEST"), Reply::List(vec![]));
        client.ok("CONFIG SET latency-monitor-threshold 1");
        hand_over(&server, &mut client);
        assert!(worst_ms(&mut client, HAND_OVER).is_some());
    }
}

#[test]
fn renamed_config_command_disables_samples() {
    let setup = Setup::new().config("rename-command CONFIG hidden\nlatency-monitor-threshold 1");
    let (server, _subscribers) = slow(&setup);
    let mut client = server.client();
    hand_over(&server, &mut client);
    assert!(worst_ms(&mut client, COMMAND).is_some());
    assert_eq!(worst_ms(&mut client, HAND_OVER), None);
}

/// What replicas and the AOF are told of hand-overs in a command, a transaction, a script and the background.
fn told_of_hand_overs(server: &Server) -> Vec<String> {
    let mut client = server.client();
    let release = "redis.call('SET', 'before', 1); local r = redis.call('LOCK.RELEASE', 'door', 'alice');\
                   redis.call('SET', 'behind', 1); return r";
    let transaction = ["MULTI", "SET before 1", "LOCK.RELEASE door alice", "SET behind 1", "EXEC"];
    let ways: [&dyn Fn(&mut Client); 4] = [
        &|client| assert_eq!(client.run("LOCK.RELEASE door alice"), 0),
        &|client| transaction.iter().for_each(|line| drop(client.run(line))),
        &|client| assert_eq!(client.call(&["EVAL", release, "0"]), 0),
        &|client| assert_eq!(client.run("PEXPIREAT door 1"), 1),
    ];
    for free in ways {
        assert_eq!(client.run("LOCK.ACQUIRE door alice"), 1);
        let mut bob = Waiter::start(server, "LOCK.REENTER door bob BLOCK 0");
        free(&mut client);
        assert_eq!(bob.reply(), 1);
        assert_eq!(client.run("LOCK.RELEASE door bob"), 0);
    }
    server.aof().commands()
}

#[test]
fn sample_does_not_change_aof() {
    let setup = Setup::new().config(Aof::CONFIG);
    let (server, _subscribers) = slow(&setup.clone().config("latency-monitor-threshold 1"));
    let slowly = told_of_hand_overs(&server);
    assert!(worst_ms(&mut server.client(), HAND_OVER).is_some());
    assert_eq!(slowly, told_of_hand_overs(&setup.start()));
    assert!(slowly.iter().filter(|line| *line == "HSET door bob 1").count() == 4, "{slowly:?}");
}
