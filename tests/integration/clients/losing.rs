//! The programs of docs/guides/losing-a-lock.md: work under a lock ends when the lock is lost, by whatever means, and goes
//! on as long as it is held.
//!
//! Where the server tells, the leases are so long that a program that is not told would be found out.

use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use support::parallel::for_each;
use support::process::Process;
use support::replicas::{in_time, master, replica_of};
use support::sentinel::{Sentinel, new_master};
use support::{Client, PATIENCE, Server, Waiter, eventually, now_ms};

use crate::documents::blocks::{LOSING, two_blocks};
use crate::documents::programs::{Lines, Running, calls, is_installed};

/// How long a program may take to start on a busy machine, and to say that its work is done.
const LIMIT: Duration = Duration::from_secs(30);

/// A lease so long that a program that asks only after a third of it is late: see [`PATIENCE`].
const LONG_MS: i64 = 60_000;

/// How soon work ends when the server tells, in half of all cases. On an idle machine it takes 3 ms.
const USUAL: Duration = Duration::from_secs(1);

/// A lease that ends in the test, how much of it the programs use, and how much earlier or later they may say so on a busy
/// machine.
const SHORT_MS: i64 = 6_000;
const USED_MS: i64 = 5_400;
const ACCURACY_MS: i64 = 2_500;

/// Takes COUNT locks, does nothing under each until it is lost, and says so.
const TAILS: [(&str, &str); 2] = [
    (
        "python",
        r#"
async def hold(client, key):
    token = "holder-of-" + key
    assert await client.execute_command("LOCK.ACQUIRE", key, token, "PX", LEASE_MS)
    try:
        async with held(client, key, token, LEASE_MS):
            print("held", key, flush=True)
            await asyncio.sleep(600)
    except LockLost:
        print("lost", key, flush=True)


def open_client():
    return redis.Redis(port=6379, protocol=3, decode_responses=True, max_connections=1000)


async def main():
    client = open_client()
    await asyncio.gather(*(hold(client, f"door:{n}") for n in range(COUNT)))


asyncio.run(main())"#,
    ),
    (
        "javascript",
        r#"
async function hold(client, key) {
    const token = 'holder-of-' + key
    if (await client.sendCommand(['LOCK.ACQUIRE', key, token, 'PX', 'LEASE_MS']) !== 1) throw new Error('not taken')
    try {
        await whileHeld(client, key, token, LEASE_MS, async signal => {
            console.log('held ' + key)
            await sleep(600000, undefined, { signal })
        })
    } catch (error) {
        if (!(error instanceof LockLost)) throw error
        console.log('lost ' + key)
    }
}

const client = createClient({ url: 'redis://127.0.0.1:6379', RESP: 3, emitInvalidate: true })
client.on('error', () => {}).setMaxListeners(0)
await client.connect()
await Promise.all(Array.from({ length: COUNT }, (_, n) => hold(client, 'door:' + n)))"#,
    ),
];

/// A program that holds locks.
struct Holder {
    language: &'static str,
    program: Running,
    lines: Lines,
}

impl Holder {
    /// Starts it on the guide's code, and waits until it holds its locks.
    #[track_caller]
    fn start(language: &'static str, tail: &str, port: u16, count: usize, lease_ms: i64) -> Self {
        let [copied, _] = two_blocks(LOSING, language);
        // One at a time, since an interpreter that starts is all work.
        static STARTING: Mutex<()> = Mutex::new(());
        let _turn = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let tail = tail.replace("COUNT", &count.to_string()).replace("LEASE_MS", &lease_ms.to_string());
        let mut program = Running::start(language, &(copied + "\n" + &tail), port);
        let lines = program.lines();
        let holder = Self { language, program, lines };
        let mut held: Vec<String> = (0..count).map(|_| holder.says_within(LIMIT)).collect();
        held.sort();
        let mut all: Vec<String> = (0..count).map(|number| format!("held door:{number}")).collect();
        all.sort();
        assert_eq!(held, all, "{language}");
        holder
    }

    #[track_caller]
    fn says_within(&self, span: Duration) -> String {
        self.lines.next_within(span).unwrap_or_else(|| panic!("{}: not said in {span:?}", self.language))
    }

    /// The work under this lock, and no other, ends, and not only when a third of the lease has passed. How long it took.
    #[track_caller]
    fn loses(&self, number: usize, what: &str) -> Duration {
        let begun = Instant::now();
        assert_eq!(self.says_within(PATIENCE), format!("lost door:{number}"), "{}: {what}", self.language);
        let took = begun.elapsed();
        eprintln!("{}: {:.1} ms after {what}", self.language, took.as_secs_f64() * 1e3);
        took
    }

    #[track_caller]
    fn says_nothing(&self, span: Duration) {
        assert_eq!(self.lines.next_within(span), None, "{}", self.language);
    }

    /// The work ends a little before the lease that the server knew of.
    #[track_caller]
    fn loses_before(&self, end_ms: i64) {
        assert_eq!(self.says_within(LIMIT), "lost door:0", "{}", self.language);
        let late = now_ms() - (end_ms - SHORT_MS + USED_MS);
        eprintln!("{}: {late} ms late", self.language);
        assert!(late.abs() < ACCURACY_MS, "{}: {late} ms late", self.language);
    }
}

/// Runs a test for each language that can be run here.
fn for_each_language(check: impl Fn(&'static str, &'static str) + Sync) {
    let installed: Vec<_> = TAILS.into_iter().filter(|(language, _)| is_installed(language)).collect();
    assert!(!installed.is_empty());
    for_each(&installed, |(language, tail)| check(language, tail));
}

/// What takes the lock `DOOR` away.
const LOSSES: [&str; 9] = [
    "DEL DOOR",
    "UNLINK DOOR",
    "SET DOOR other",
    "SET DOOR other PX 600000",
    "RENAME DOOR elsewhere",
    "PEXPIRE DOOR -1",
    "LOCK.RELEASE DOOR holder-of-DOOR",
    "EVAL return(redis.call('DEL',KEYS[1])) 1 DOOR",
    "FLUSHALL",
];

#[test]
fn work_ends_when_the_lock_is_taken_away() {
    for_each_language(|language, tail| {
        let server = Server::start();
        let mut operator = server.client();
        let holder = Holder::start(language, tail, server.port(), LOSSES.len(), LONG_MS);
        let mut next = Waiter::start(&server, "LOCK.ACQUIRE door:0 next PX 600000 BLOCK 0");
        let mut took: Vec<Duration> = Vec::new();
        for (number, line) in LOSSES.iter().enumerate() {
            let line = line.replace("DOOR", &format!("door:{number}"));
            assert!(!operator.run(&line).is_error(), "{line}");
            took.push(holder.loses(number, &line));
        }
        assert_eq!(next.reply(), 1, "a hand-over");
        took.sort();
        assert!(took[LOSSES.len() / 2] < USUAL, "{language}: {took:?}");
    });
}

#[test]
fn work_goes_on_while_the_lock_is_held_whatever_else_happens() {
    for_each_language(|language, tail| {
        let server = Server::start();
        let mut other = server.client();
        let holder = Holder::start(language, tail, server.port(), 1, SHORT_MS);
        let first_end = other.expires_at("door:0");
        for line in [
            "LOCK.ACQUIRE door:0 other PX 9000",
            "LOCK.ACQUIRE door:0 other PX 9000 BLOCK 20",
            "LOCK.RELEASE door:0 other",
            "DEL gate",
            "PEXPIRE door:0 5000",
            "PEXPIRE door:0 600000",
            "LOCK.ACQUIRE door:0 holder-of-door:0 PX 700000",
            "SELECT 1",
            "SET door:0 other",
            "FLUSHDB",
            "SELECT 0",
        ] {
            let _ = other.run(line);
        }
        // Connections are cut while it is idle, and right before it is told.
        for lines in [vec!["PING"], vec!["PEXPIRE door:0 600000"], vec!["PEXPIRE door:0 600000", "PING"]] {
            eventually("a connection is cut", || {
                other.send_together(&[lines.as_slice(), &["CLIENT KILL TYPE normal SKIPME yes"]].concat());
                lines.iter().for_each(|line| assert!(!other.receive().is_error(), "{line}"));
                other.receive().int() > 0
            });
            let asked = calls(&mut other, "lock.extend");
            eventually("it asks on another connection", || calls(&mut other, "lock.extend") > asked);
        }
        eventually("it has a lease that the first EXTEND did not give", || other.expires_at("door:0") > first_end);
        let (end, asked) = (other.expires_at("door:0"), calls(&mut other, "lock.extend"));
        holder.says_nothing(Duration::from_millis(u64::try_from(SHORT_MS).unwrap()));
        assert!(other.expires_at("door:0") > end, "{language}: it is extended on time");
        let asked = calls(&mut other, "lock.extend") - asked;
        assert!(asked <= 10, "{language}: {asked} times is more than every third of the lease");
        assert_eq!(other.run("DEL door:0"), 1);
        holder.loses(0, "all this, and DEL");
    });
}

/// The change comes at another moment of the program's asking each time: before the EXTEND, between it and LOCK.INFO, and
/// before the program has read what LOCK.INFO said.
#[test]
fn a_lock_that_is_lost_while_the_program_asks_is_noticed() {
    const LOCKS: usize = 100;
    for_each_language(|language, tail| {
        let server = Server::start();
        let mut operator = server.client();
        let holder = Holder::start(language, tail, server.port(), LOCKS, LONG_MS);
        for number in 0..LOCKS {
            // Makes the program ask.
            assert_eq!(operator.run(&format!("PEXPIRE door:{number} {LONG_MS}")), 1);
            thread::sleep(Duration::from_micros(20 * number as u64));
            operator.ok(&format!("SET door:{number} other PX 600000"));
        }
        let mut lost: Vec<String> = (0..LOCKS).map(|_| holder.says_within(PATIENCE)).collect();
        lost.sort();
        lost.dedup();
        assert_eq!(lost.len(), LOCKS, "{language}");
        assert!(lost.iter().all(|line| line.starts_with("lost ")), "{language}");
    });
}

/// The last lease that the server knows of.
#[track_caller]
fn end_of(client: &mut Client) -> i64 {
    client.expires_at("door:0")
}

#[test]
fn work_ends_with_the_lease_when_the_server_does_not_answer() {
    for_each_language(|language, tail| {
        let server = Server::start();
        let holder = Holder::start(language, tail, server.port(), 1, SHORT_MS);
        let end = end_of(&mut server.client());
        let process = Process::of(&server);
        process.stop();
        holder.loses_before(end);
        process.resume();
    });
}

#[test]
fn work_ends_with_the_lease_when_the_server_is_gone() {
    for_each_language(|language, tail| {
        let mut server = Server::start();
        let holder = Holder::start(language, tail, server.port(), 1, SHORT_MS);
        let end = end_of(&mut server.client());
        Process::kill(&mut server);
        holder.loses_before(end);
    });
}

/// `NOREPLICAS`, `READONLY` and `NOLEASE` leave it open whether the lock is held.
#[test]
fn work_ends_with_the_lease_when_the_server_refuses_to_extend_it() {
    let refusals = ["CONFIG SET min-replicas-to-write 1", "REPLICAOF 127.0.0.1 1", "PERSIST door:0"];
    for_each_language(|language, tail| {
        for_each(&refusals, |refusal| {
            let server = Server::start();
            let holder = Holder::start(language, tail, server.port(), 1, SHORT_MS);
            let mut operator = server.client();
            let end = end_of(&mut operator);
            assert!(!operator.run(refusal).is_error(), "{refusal}");
            holder.loses_before(end);
        });
    });
}

#[test]
fn work_goes_on_after_a_short_refusal_and_ends_when_the_lock_is_lost_together_with_the_connection() {
    for_each_language(|language, tail| {
        let server = Server::start();
        let holder = Holder::start(language, tail, server.port(), 1, SHORT_MS);
        let mut operator = server.client();
        operator.ok("CONFIG SET min-replicas-to-write 1");
        eventually("it is refused", || operator.info("errorstats", "errorstat_NOREPLICAS").is_some());
        operator.ok("CONFIG SET min-replicas-to-write 0");
        let end = end_of(&mut operator);
        eventually("the lease is extended", || end_of(&mut operator) > end);
        holder.says_nothing(Duration::from_millis(100));
        operator.send_together(&["CLIENT KILL TYPE normal SKIPME yes", "SET door:0 other"]);
        assert!(operator.receive().int() > 0);
        assert_eq!(operator.receive(), "OK");
        holder.loses(0, "a lost connection, and SET");
    });
}

#[track_caller]
fn signal(program: &mut Running, signal: &str) {
    let status = Command::new("kill").args([signal, &program.id().to_string()]).status();
    assert!(status.expect("kill").success());
}

#[test]
fn work_of_a_program_that_stood_still_until_its_lease_had_ended_ends_when_it_goes_on() {
    for_each_language(|language, tail| {
        let server = Server::start();
        let mut holder = Holder::start(language, tail, server.port(), 1, SHORT_MS);
        signal(&mut holder.program, "-STOP");
        let mut other = server.client();
        assert_eq!(other.run("LOCK.ACQUIRE door:0 other PX 600000 BLOCK 9000"), 1, "{language}");
        signal(&mut holder.program, "-CONT");
        holder.loses(0, "a standstill");
        assert_eq!(other.run("GET door:0"), "other");
    });
}

/// The client asks the sentinels for the master.
const WITH_SENTINEL: &str = r#"
    from redis.asyncio.sentinel import Sentinel

    sentinel = Sentinel([("127.0.0.1", 6379)], sentinel_kwargs={"protocol": 3, "decode_responses": True})
    return sentinel.master_for("locks", protocol=3, decode_responses=True)"#;

#[test]
fn a_lock_that_a_failover_has_kept_is_kept_on_with_redis_py_and_sentinel() {
    let mut old = master("");
    let replicas = [replica_of(&old), replica_of(&old)];
    let sentinels = Sentinel::start_three(&old, replicas.len());
    let (language, tail) = TAILS[0];
    let open = "
    return redis.Redis(port=6379, protocol=3, decode_responses=True, max_connections=1000)";
    assert!(tail.contains(open));
    let holder = Holder::start(language, &tail.replace(open, WITH_SENTINEL), sentinels[0].port(), 1, LONG_MS);
    for replica in &replicas {
        eventually("the lock arrives", || replica.client().run("EXISTS door:0") == 1);
    }
    let old_port = old.port();
    Process::kill(&mut old);
    let mut operator = new_master(&sentinels, old_port, &replicas).client();
    in_time("the holder extends its lease at the new master", || calls(&mut operator, "lock.extend") > 0);
    holder.says_nothing(Duration::from_millis(100));
    assert_eq!(operator.run("DEL door:0"), 1);
    holder.loses(0, "a failover, and DEL");
}

/// Runs what the guide shows, as it stands.
#[test]
fn the_work_that_the_guide_shows_is_done_alone_or_ended() {
    for_each_language(|language, _| {
        let server = Server::start();
        let mut client = server.client();
        let shown = two_blocks(LOSING, language).join(
            "

",
        );
        let mut program = Running::start(language, &shown, server.port());
        assert_eq!(
            program.said_within(LIMIT),
            Ok("the door is ours
all is done
"
            .to_owned()),
            "{language}"
        );
        assert_eq!(client.run("EXISTS door"), 0, "{language}");

        let longer = shown.replace("range(20)", "range(20000)").replace("step < 20;", "step < 20000;");
        assert_ne!(longer, shown);
        let mut program = Running::start(language, &longer, server.port());
        let lines = program.lines();
        assert_eq!(lines.next_within(LIMIT).as_deref(), Some("the door is ours"), "{language}");
        client.ok("SET door other");
        let said = lines.next_within(PATIENCE).expect("a word");
        assert!(said.starts_with("the door is lost"), "{language}: {said}");
        assert_eq!(program.said_within(LIMIT), Ok(String::new()), "{language}");
        assert_eq!(client.run("GET door"), "other", "{language}");
    });
}
