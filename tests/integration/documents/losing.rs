//! Runs the programs of examples/losing: work under a lock ends when the lock is lost, and continues while it
//! is held.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use support::parallel::for_each;
use support::process::Process;
use support::{PATIENCE, Server, Waiter, eventually, now_ms};

use super::blocks::{LOSING, two_parts};
use super::programs::{Lines, Running, calls, is_installed};

/// How long a program may take to start on a busy machine, and to end.
const LIMIT: Duration = Duration::from_secs(30);

/// A lease so long that a program that asks only after a third of it is late: see [`PATIENCE`].
const LONG_MS: i64 = 60_000;

/// A lease that ends in the test, how much of it the programs use, and the accuracy on a busy machine.
const SHORT_MS: i64 = 6_000;
const USED_MS: i64 = 5_400;
const ACCURACY_MS: i64 = 2_500;

/// What follows the code to copy: takes COUNT locks, and says which it holds and which it has lost.
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


async def main():
    client = redis.Redis(port=6379, protocol=3, decode_responses=True, max_connections=1000)
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
    _program: Running,
    lines: Lines,
}

impl Holder {
    /// Starts the guide's code with a tail, and returns when it holds its locks.
    #[track_caller]
    fn start(language: &'static str, tail: &str, port: u16, count: usize, lease_ms: i64) -> Self {
        let [copied, _] = two_parts(LOSING, language);
        // One at a time: an interpreter that starts needs a whole core.
        static STARTING: Mutex<()> = Mutex::new(());
        let _turn = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let tail = tail.replace("COUNT", &count.to_string()).replace("LEASE_MS", &lease_ms.to_string());
        let mut program = Running::start(language, &(copied + "\n" + &tail), port);
        let lines = program.lines();
        let holder = Self { language, _program: program, lines };
        holder.says("held", 0..count, LIMIT);
        holder
    }

    /// Says this of each lock, in any order.
    #[track_caller]
    fn says(&self, what: &str, numbers: std::ops::Range<usize>, limit: Duration) {
        let mut missing: BTreeSet<String> = numbers.map(|number| format!("{what} door:{number}")).collect();
        while !missing.is_empty() {
            let line = self.lines.next_within(limit);
            let line = line.unwrap_or_else(|| panic!("{}: not said in {limit:?}: {missing:?}", self.language));
            assert!(missing.remove(&line), "{}: {line}", self.language);
        }
    }
}

/// Runs a test for each language that can be run here.
fn for_each_language(check: impl Fn(&'static str, &'static str) + Sync) {
    let installed: Vec<_> = TAILS.into_iter().filter(|(language, _)| is_installed(language)).collect();
    for_each(&installed, |(language, tail)| check(language, tail));
}

/// What takes the lock `DOOR` from its holder.
const LOSSES: [&str; 8] = [
    "DEL DOOR",
    "UNLINK DOOR",
    "SET DOOR other",
    "SET DOOR other PX 600000",
    "RENAME DOOR elsewhere",
    "PEXPIRE DOOR -1",
    "LOCK.RELEASE DOOR holder-of-DOOR",
    "EVAL return(redis.call('DEL',KEYS[1])) 1 DOOR",
];

/// A PEXPIRE makes the program ask. The loss comes at another moment of its question each time: before EXTEND, before
/// LOCK.INFO, and before it has read the reply.
#[test]
fn work_ends_when_lock_is_lost_at_any_moment() {
    const LOCKS: usize = 100;
    for_each_language(|language, tail| {
        let server = Server::start();
        let mut operator = server.client();
        let holder = Holder::start(language, tail, server.port(), LOCKS + 2, LONG_MS);
        for number in 0..LOCKS {
            assert_eq!(operator.run(&format!("PEXPIRE door:{number} {LONG_MS}")), 1);
            thread::sleep(Duration::from_micros(20 * number as u64));
            let line = LOSSES[number % LOSSES.len()].replace("DOOR", &format!("door:{number}"));
            assert!(!operator.run(&line).is_error(), "{line}");
        }
        holder.says("lost", 0..LOCKS, PATIENCE);
        let mut next = Waiter::start(&server, &format!("LOCK.ACQUIRE door:{LOCKS} next PX 600000 BLOCK 0"));
        assert_eq!(operator.run(&format!("LOCK.RELEASE door:{LOCKS} holder-of-door:{LOCKS}")), 0);
        assert_eq!(next.reply(), 1, "a hand-over");
        holder.says("lost", LOCKS..LOCKS + 1, PATIENCE);
        operator.ok("FLUSHALL");
        holder.says("lost", LOCKS + 1..LOCKS + 2, PATIENCE);
    });
}

#[test]
fn work_continues_while_lock_is_held() {
    for_each_language(|language, tail| {
        let server = Server::start();
        let mut other = server.client();
        let holder = Holder::start(language, tail, server.port(), 1, SHORT_MS);
        for line in [
            "LOCK.ACQUIRE door:0 other PX 9000 BLOCK 20",
            "LOCK.RELEASE door:0 other",
            "PEXPIRE door:0 5000",
            "PEXPIRE door:0 600000",
            "SELECT 1",
            "SET door:0 other",
            "FLUSHDB",
            "SELECT 0",
        ] {
            let _ = other.run(line);
        }
        eventually("a connection is cut", || other.run("CLIENT KILL TYPE normal SKIPME yes").int() > 0);
        let asked = calls(&mut other, "lock.extend");
        eventually("it asks on another connection", || calls(&mut other, "lock.extend") > asked);
        let end = other.expires_at("door:0");
        let said = holder.lines.next_within(Duration::from_millis(u64::try_from(SHORT_MS).unwrap()));
        assert_eq!(said, None, "{language}");
        assert!(other.expires_at("door:0") > end, "{language}: it extends the lease in time");
        assert_eq!(other.run("DEL door:0"), 1);
        holder.says("lost", 0..1, PATIENCE);
    });
}

#[test]
fn work_ends_before_lease_at_stopped_server() {
    for_each_language(|language, tail| {
        let server = Server::start();
        let holder = Holder::start(language, tail, server.port(), 1, SHORT_MS);
        let end = server.client().expires_at("door:0");
        let process = Process::of(&server);
        process.stop();
        holder.says("lost", 0..1, LIMIT);
        let late = now_ms() - (end - SHORT_MS + USED_MS);
        assert!(late.abs() < ACCURACY_MS, "{language}: {late} ms late");
        process.resume();
    });
}

#[test]
fn shown_work_is_done_or_ended() {
    for_each_language(|language, _| {
        let server = Server::start();
        let mut client = server.client();
        let shown = two_parts(LOSING, language).join("\n\n");
        let mut program = Running::start(language, &shown, server.port());
        assert_eq!(program.output_within(LIMIT), Ok("the door is ours\nall is done\n".to_owned()), "{language}");
        assert_eq!(client.run("EXISTS door"), 0, "{language}");

        let longer = shown.replace("range(20)", "range(20000)").replace("step < 20;", "step < 20000;");
        assert_ne!(longer, shown);
        let mut program = Running::start(language, &longer, server.port());
        let lines = program.lines();
        assert_eq!(lines.next_within(LIMIT).as_deref(), Some("the door is ours"), "{language}");
        client.ok("SET door other");
        let said = lines.next_within(PATIENCE).expect("a line");
        assert!(said.starts_with("the door is lost"), "{language}: {said}");
        assert_eq!(program.output_within(LIMIT), Ok(String::new()), "{language}");
        assert_eq!(client.run("GET door"), "other", "{language}");
    });
}
