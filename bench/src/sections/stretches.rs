//! The longest batch of the module's background work when very much is due at the same time.

use std::thread;
use std::time::Duration;

use rayon::prelude::*;
use support::{Client, Server, happens_within, info_lock, now_ms};

use crate::callgrind::{self, Lengths, Watched, cycles};
use crate::many::{LONG, request, run_all, subscriber};
use crate::report::{Bar, Effort, Row, Section};

/// A server under callgrind delays its clients for longer than without.
const CONFIG: &str = "client-output-buffer-limit pubsub 0 0 0\nlock.max-waiters 1000000\nlock.max-sessions 1000000";
/// The longest time of a request under callgrind, with its lock, on a busy machine.
const EACH: Duration = Duration::from_micros(900);
const AT_MOST: Duration = Duration::from_secs(120);
/// The longest batch of ten times as many entries may take this much more: sorted tables take a step more, and some double their
/// capacity. Work without batches takes ten times as much.
const MAX_GROWTH: f64 = 2.5;

/// Makes that number of entries due at the same time, and returns when all are done.
type Scene = (&'static str, fn(&Server, usize));

const SCENES: [Scene; 6] = [
    ("FLUSHALL, with a wait for a message about each lock", flushed),
    ("leases that end together, with such waits", ended),
    ("a recovery period that ends, with such waits", recovered),
    ("a connection that closes with such waits", waits_closed),
    ("a connection that closes with sessions", sessions_closed),
    ("readers of one lock that are granted together", readers_granted),
];

pub fn measure(effort: Effort) -> Section {
    let counts = effort.choose([10_000, 100_000], [2_000, 4_000]);
    let ping = callgrind::counts(&[cycles::ping()], Lengths::of(effort)).first().expect("a count").mean();
    // The runs of each scene with each count.
    let runs: Vec<[Vec<f64>; 2]> = SCENES.par_iter().map(|(_, play)| counts.map(|count| watch(*play, count))).collect();
    let longest = |runs: &Vec<f64>| runs.iter().copied().fold(0.0, f64::max);
    let (mut rows, mut bars) = (Vec::new(), Vec::new());
    for ((what, _), [few, many]) in SCENES.iter().zip(&runs) {
        let (short, long) = (longest(few), longest(many));
        rows.push(Row::new(*what, [short / 1e6, long / 1e6, long / ping, many.len() as f64]));
        bars.push(Bar::at_most(format!("{what}: ten times as many, longest batch, x"), long / short, MAX_GROWTH));
    }
    let [few, many] = counts;
    Section {
        title: "The longest batch of background work when very much is due",
        method: format!(
            "Instructions of each batch, with all that it lets the server do, by callgrind. {few} and {many} entries are due at the \
             same time. PING is an iteration of the event loop with one command."
        ),
        headings: vec![
            "what is due".to_owned(),
            format!("longest of {few}, million instructions"),
            format!("of {many}"),
            "x PING".to_owned(),
            "batches".to_owned(),
        ],
        rows,
        bars,
    }
}

fn watch(play: fn(&Server, usize), count: usize) -> Vec<f64> {
    let watched = Watched::start(CONFIG);
    play(&watched.server, count);
    watched.runs()
}

fn flushed(server: &Server, count: usize) {
    let (mut client, _subscriber) = (server.client(), subscriber(server));
    wait_for_each(&mut client, count, || LONG.to_owned());
    client.ok("FLUSHALL");
    until_none(&mut client, "waiters");
}

fn ended(server: &Server, count: usize) {
    let (mut client, _subscriber) = (server.client(), subscriber(server));
    let all = EACH * u32::try_from(count).expect("a count");
    let end = now_ms() + i64::try_from(all.as_millis()).expect("a time") + 1000;
    wait_for_each(&mut client, count, || (end - now_ms()).to_string());
    assert!(now_ms() < end, "no lease has ended");
    thread::sleep(Duration::from_millis((end - now_ms()).try_into().unwrap_or_default()));
    until_none(&mut client, "waiters");
}

fn recovered(server: &Server, count: usize) {
    let (mut client, _subscriber) = (server.client(), subscriber(server));
    wait_for_each(&mut client, count, || LONG.to_owned());
    client.ok(&format!("CONFIG SET lock.recovery-ms {LONG}"));
    client.ok("FLUSHALL");
    assert_eq!(info_lock(&mut client, "waiters"), i64::try_from(count).expect("a count"), "grants are suspended");
    client.ok("CONFIG SET lock.recovery-ms 0");
    until_none(&mut client, "waiters");
}

fn waits_closed(server: &Server, count: usize) {
    let (mut client, mut waiting, _subscriber) = (server.client(), server.client(), subscriber(server));
    wait_for_each(&mut waiting, count, || LONG.to_owned());
    drop(waiting);
    until_none(&mut client, "waiters");
}

fn sessions_closed(server: &Server, count: usize) {
    let (mut client, mut holder) = (server.client(), server.client());
    run_all(&mut holder, count, |number| vec![format!("LOCK.ACQUIRE door:{number} alice PX {LONG} SESSION")]);
    drop(holder);
    until_none(&mut client, "sessions");
}

fn readers_granted(server: &Server, count: usize) {
    let (mut client, _subscriber) = (server.client(), subscriber(server));
    assert_eq!(client.run("LOCK.ACQUIRE door writer"), 1);
    run_all(&mut client, count, |number| vec![request("LOCK.SHARE", "door", &number.to_string())]);
    assert_eq!(client.run("LOCK.RELEASE door writer"), 0);
    until_none(&mut client, "waiters");
}

/// Acquires that number of locks, and waits for each.
fn wait_for_each(client: &mut Client, count: usize, lease_ms: impl Fn() -> String) {
    run_all(client, count, |number| {
        let key = format!("door:{number}");
        vec![format!("LOCK.ACQUIRE {key} alice PX {}", lease_ms()), request("LOCK.ACQUIRE", &key, "bob")]
    });
}

fn until_none(client: &mut Client, of: &str) {
    assert!(happens_within(AT_MOST, || info_lock(client, of) == 0), "there still are {of}");
}
