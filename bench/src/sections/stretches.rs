//! How much the module does in one go when very much becomes due at once.

use std::thread;
use std::time::Duration;

use rayon::prelude::*;
use support::{Client, Server, bytes_of, happens_within, info_lock, now_ms};

use crate::callgrind::{self, Lengths, Watched, cycles};
use crate::progress;
use crate::section::{Bar, Effort, Row, Section, Table};

/// A server under callgrind holds up its clients for longer than it would by itself.
const CONFIG: &str = "client-output-buffer-limit pubsub 0 0 0\nlock.max-waiters 1000000\nlock.max-sessions 1000000";
const CHANNEL: &str = "news";
/// Longer than anything that is measured, in milliseconds.
const LONG: &str = "3600000";
/// Commands in one write.
const BATCH: usize = 1000;
/// What a request takes under callgrind at most, with its lock, on a machine that other work is using, too.
const EACH: Duration = Duration::from_micros(900);
/// For all that is due to be done.
const AT_MOST: Duration = Duration::from_secs(120);
/// The longest run with ten times as many entries, beside that with fewer. Sorted tables take a step more, and some double
/// their room; what is done in one go would take ten times as much.
const MOST_GROWTH: f64 = 2.5;

/// Something that makes very much due at once, and what there is of it.
struct Scene {
    what: &'static str,
    /// Returns when all of so many entries are done.
    play: fn(&Server, usize),
}

const SCENES: [Scene; 6] = [
    Scene { what: "FLUSHALL, with a wait for a message about each lock", play: flushed },
    Scene { what: "leases that end together, with such waits", play: ended },
    Scene { what: "a recovery period that ends, with such waits", play: recovered },
    Scene { what: "a connection that closes with such waits", play: waits_closed },
    Scene { what: "a connection that closes with sessions", play: sessions_closed },
    Scene { what: "readers of one lock that are let in together", play: readers_let_in },
];

/// The background work that was done in a scene.
struct Work {
    runs: usize,
    longest: f64,
}

pub fn measure(effort: Effort) -> Section {
    let counts = effort.choose([10_000, 100_000], [2_000, 4_000]);
    let ping = callgrind::counts("stretches", &[cycles::ping()], Lengths::of(effort)).first().expect("a count").mean();
    let progress = progress::bar("stretches", SCENES.len() * counts.len());
    let watch = |scene: &Scene| {
        counts.map(|count| {
            let work = watch(scene, count);
            progress.inc(1);
            work
        })
    };
    let seen: Vec<[Work; 2]> = SCENES.par_iter().map(watch).collect();
    Section {
        name: "stretches",
        title: "What is done in one go when very much becomes due",
        method: method(counts),
        table: table(&seen, counts, ping),
        bars: SCENES.iter().zip(&seen).map(bar).collect(),
        plot: None,
    }
}

fn method([few, many]: [usize; 2]) -> String {
    format!(
        "Instructions of each run of the module's background work, between which the server serves its clients, with all that \
         it has the server do; counted by callgrind. {few} and {many} entries of a kind become due at once. PING is a round of \
         the server's loop with one command, counted as for the mutex above."
    )
}

fn table(seen: &[[Work; 2]], [few, many]: [usize; 2], ping: f64) -> Table {
    let rows = SCENES.iter().zip(seen).map(|(scene, [less, more])| Row {
        label: format!("redis-lock: {}", scene.what),
        cells: [less.longest / 1e6, more.longest / 1e6, more.longest / ping, more.runs as f64].map(Some).to_vec(),
    });
    let headings = [
        "what becomes due".to_owned(),
        format!("longest run of {few}, million instructions"),
        format!("of {many}"),
        "x PING".to_owned(),
        "runs".to_owned(),
    ];
    Table::new(headings, rows.collect())
}

fn bar((scene, [less, more]): (&Scene, &[Work; 2])) -> Bar {
    Bar::at_most(format!("{}: ten times as many, longest run, x", scene.what), more.longest / less.longest, MOST_GROWTH)
}

fn watch(scene: &Scene, count: usize) -> Work {
    let watched = Watched::start(CONFIG);
    (scene.play)(&watched.server, count);
    let runs = watched.runs();
    Work { runs: runs.len(), longest: runs.into_iter().fold(0.0, f64::max) }
}

fn flushed(server: &Server, count: usize) {
    let (mut client, _listener) = (server.client(), listener(server));
    wait_for_each(&mut client, count, || LONG.to_owned());
    client.ok("FLUSHALL");
    until_none(&mut client, "waiters");
}

fn ended(server: &Server, count: usize) {
    let (mut client, _listener) = (server.client(), listener(server));
    let end =
        now_ms() + i64::try_from((EACH * u32::try_from(count).expect("a count")).as_millis()).expect("a time") + 1000;
    wait_for_each(&mut client, count, || (end - now_ms()).to_string());
    assert!(now_ms() < end, "all leases still run");
    thread::sleep(Duration::from_millis((end - now_ms()).try_into().unwrap_or_default()));
    until_none(&mut client, "waiters");
}

fn recovered(server: &Server, count: usize) {
    let (mut client, _listener) = (server.client(), listener(server));
    wait_for_each(&mut client, count, || LONG.to_owned());
    client.ok(&format!("CONFIG SET lock.recovery-ms {LONG}"));
    client.ok("FLUSHALL");
    assert_eq!(info_lock(&mut client, "waiters"), i64::try_from(count).expect("a count"), "grants are held back");
    client.ok("CONFIG SET lock.recovery-ms 0");
    until_none(&mut client, "waiters");
}

fn waits_closed(server: &Server, count: usize) {
    let (mut client, mut asker, _listener) = (server.client(), server.client(), listener(server));
    wait_for_each(&mut asker, count, || LONG.to_owned());
    drop(asker);
    until_none(&mut client, "waiters");
}

fn sessions_closed(server: &Server, count: usize) {
    let (mut client, mut holder) = (server.client(), server.client());
    run_all(&mut holder, count, |number| vec![format!("LOCK.ACQUIRE door:{number} alice PX {LONG} SESSION")]);
    drop(holder);
    until_none(&mut client, "sessions");
}

fn readers_let_in(server: &Server, count: usize) {
    let (mut client, _listener) = (server.client(), listener(server));
    assert_eq!(client.run("LOCK.ACQUIRE door writer"), 1);
    run_all(&mut client, count, |number| vec![format!("LOCK.SHARE door {number} PX {LONG} BLOCK 0 NOTIFY {CHANNEL}")]);
    assert_eq!(client.run("LOCK.RELEASE door writer"), 0);
    until_none(&mut client, "waiters");
}

/// A connection that listens to the messages, and does not read them.
fn listener(server: &Server) -> Client {
    let mut client = server.client();
    client.run(&format!("SSUBSCRIBE {CHANNEL}"));
    client
}

/// So many locks, and a wait for each.
fn wait_for_each(client: &mut Client, count: usize, lease_ms: impl Fn() -> String) {
    run_all(client, count, |number| {
        let key = format!("door:{number}");
        let wait = format!("LOCK.ACQUIRE {key} bob PX {LONG} BLOCK 0 NOTIFY {CHANNEL}");
        vec![format!("LOCK.ACQUIRE {key} alice PX {}", lease_ms()), wait]
    });
}

/// Runs the commands for each of so many numbers. None is answered by an error.
fn run_all(client: &mut Client, count: usize, commands: impl Fn(usize) -> Vec<String>) {
    let numbers: Vec<usize> = (0..count).collect();
    for batch in numbers.chunks(BATCH) {
        let lines: Vec<String> = batch.iter().flat_map(|&number| commands(number)).collect();
        let words: Vec<Vec<&[u8]>> = lines.iter().map(|line| bytes_of(line)).collect();
        client.send_all(words.iter().map(Vec::as_slice));
        for line in &lines {
            let answer = client.receive();
            assert!(!answer.is_error(), "{line}: {answer:?}");
        }
    }
}

fn until_none(client: &mut Client, of: &str) {
    assert!(happens_within(AT_MOST, || info_lock(client, of) == 0), "there still are {of}");
}
