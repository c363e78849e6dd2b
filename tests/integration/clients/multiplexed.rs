//! The programs of docs/guides/multiplexed-clients.md: 1,000 tasks contend for 10 locks, each holds one once, and their
//! connections are cut meanwhile. The programs themselves see that nobody holds together with another.
//!
//! Their leases are as long as a test may take, so a grant that nobody has heard of fails it.

use std::fs;
use std::pin::pin;
use std::thread;
use std::time::{Duration, Instant};

use redis::RedisResult;
use support::parallel::for_each;
use support::{Client, Reply, Server, eventually, happens_within, info_lock, repository, waiters_of};

use super::redis_rs::{Locks, contend};
use crate::documents::blocks::{MULTIPLEXED, every_block, two_blocks};
use crate::documents::programs::{Running, calls, is_installed};

/// How long a program may take on a busy machine. On an idle one it takes 3 s at most.
const LIMIT: Duration = Duration::from_secs(30);

/// What is cut when 100, 400 and 700 tasks have held: the connection that asks, the one that listens, and both.
const ONE_BY_ONE: [&[&str]; 3] = [&["normal"], &["pubsub"], &["normal", "pubsub"]];

/// The same where one connection asks and listens.
const ALL: [&[&str]; 3] = [&["normal", "pubsub"]; 3];

/// A server where `holder` has a door.
fn held(door: &str) -> (Server, Client) {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run(&format!("LOCK.ACQUIRE {door} holder PX 60000")), 1);
    (server, client)
}

/// Cuts connections while tasks wait, and then frees the door that is held until then, so that none is late. A program that
/// has ended has failed, and says why.
#[track_caller]
fn cut(client: &mut Client, cuts: [&[&str]; 3], mut has_ended: impl FnMut() -> bool) {
    for (holds, kinds) in [100, 400, 700].into_iter().zip(cuts) {
        let in_time = happens_within(LIMIT, || has_ended() || calls(client, "lock.fence") >= holds);
        assert!(in_time, "tasks are left waiting after {} holds", calls(client, "lock.fence"));
        let mut kill = |kind: &&str| client.run(&format!("CLIENT KILL TYPE {kind} SKIPME yes")).int();
        // A program that has just lost a connection may not have the next one yet.
        eventually("a connection is cut", || has_ended() || kinds.iter().map(&mut kill).sum::<i64>() > 0);
    }
    assert_eq!(client.run("LOCK.RELEASE door:0 holder"), 0);
}

/// Every task has held, and has left nothing behind.
#[track_caller]
fn check(client: &mut Client) {
    assert!(calls(client, "lock.fence") >= 1000);
    assert_eq!(info_lock(client, "waiters"), 0);
    assert_eq!(info_lock(client, "handovers_expiry"), 0, "a grant that nobody has heard of");
    let doors = client.run("EXISTS door:0 door:1 door:2 door:3 door:4 door:5 door:6 door:7 door:8 door:9");
    assert_eq!(doors, 0);
}

/// Runs the guide's program in a language that needs an interpreter.
#[track_caller]
fn contend_in(language: &str) {
    if !is_installed(language) {
        return;
    }
    let (server, mut client) = held("door:0");
    let started = Instant::now();
    let [copied, tasks] = two_blocks(MULTIPLEXED, language);
    let mut program = Running::start(language, &(copied + "\n\n" + &tasks), server.port());
    cut(&mut client, ONE_BY_ONE, || program.has_ended());
    assert_eq!(program.said_within(LIMIT), Ok("1000 tasks held a lock alone\n".to_owned()));
    eprintln!("{language}: {:.1} s", started.elapsed().as_secs_f64());
    check(&mut client);
}

#[test]
fn nobody_is_left_waiting_with_redis_asyncio_when_connections_are_cut() {
    contend_in("python");
}

#[test]
fn nobody_is_left_waiting_with_ioredis_when_connections_are_cut() {
    contend_in("javascript");
}

/// Runs something in Rust, within the limit.
fn run<T>(future: impl Future<Output = RedisResult<T>>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let ended = runtime.block_on(async { tokio::time::timeout(LIMIT, future).await });
    ended.expect("tasks are left waiting").expect("no error")
}

fn url(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

#[test]
fn nobody_is_left_waiting_with_redis_rs_when_connections_are_cut() {
    let (server, mut client) = held("door:0");
    let started = Instant::now();
    thread::scope(|scope| {
        let program = scope.spawn(|| run(contend(&url(&server))));
        cut(&mut client, ALL, || program.is_finished());
    });
    eprintln!("rust: {:.1} s", started.elapsed().as_secs_f64());
    check(&mut client);
}

/// Tasks want a door that is held: one has little patience, one is cancelled, and one is served.
const GIVING_UP: [(&str, &str); 2] = [
    (
        "python",
        r#"
async def main():
    locks = Locks(port=6379)
    assert await locks.acquire("door", lease_ms=30000, patience_ms=50) is None
    served, cancelled = (asyncio.create_task(locks.acquire("door", 30000, 60000)) for _ in range(2))
    while len(await locks.client.execute_command("LOCK.WAITERS", "door")) < 2:
        await asyncio.sleep(0.01)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert cancelled.cancelled()
    await locks.release("door", "holder")
    await locks.release("door", await served)
    await locks.close()


asyncio.run(main())"#,
    ),
    (
        "javascript",
        r#"
import assert from 'node:assert'

const locks = new Locks(6379)
const stop = new AbortController()
const patient = { leaseMs: 30000, patienceMs: 60000 }
assert(await locks.acquire('door', { leaseMs: 30000, patienceMs: 50 }) === null)
const served = locks.acquire('door', patient)
const cancelled = locks.acquire('door', { ...patient, signal: stop.signal })
while ((await locks.client.call('LOCK.WAITERS', 'door')).length < 2) {}
stop.abort()
assert(await cancelled === null)
await locks.release('door', 'holder')
await locks.release('door', await served)
locks.close()"#,
    ),
];

/// Nobody has the door or waits for it.
#[track_caller]
fn is_left(client: &mut Client) {
    eventually("nobody waits", || waiters_of(client, "door") == 0);
    eventually("nobody holds", || client.run("EXISTS door") == Reply::Int(0));
    assert_eq!(info_lock(client, "handovers_expiry"), 0);
}

/// Starts what the guide shows for copying, followed by something to do. Its silence is a tenth.
fn start_with(language: &str, tail: &str, server: &Server) -> Running {
    let [copied, _] = two_blocks(MULTIPLEXED, language);
    let sooner =
        copied.replace("SILENCE_S = 5 ", "SILENCE_S = 0.5 ").replace("SILENCE_MS = 5000 ", "SILENCE_MS = 500 ");
    assert_ne!(copied, sooner);
    Running::start(language, &(sooner + tail), server.port())
}

#[test]
fn a_task_that_gives_up_leaves_the_line() {
    let installed = GIVING_UP.into_iter().filter(|(language, _)| is_installed(language));
    for_each(&installed.collect::<Vec<_>>(), |(language, tail)| {
        let (server, mut client) = held("door");
        assert_eq!(start_with(language, tail, &server).said_within(LIMIT), Ok(String::new()), "{language}");
        is_left(&mut client);
    });
}

#[test]
fn a_task_that_gives_up_leaves_the_line_with_redis_rs() {
    let (server, mut client) = held("door");
    run(async {
        let locks = Locks::open(&url(&server)).await?;
        let patient = Duration::from_secs(60);
        assert!(locks.acquire("door", 30_000, Duration::from_millis(50)).await?.is_none());
        {
            let cancelled = pin!(locks.acquire("door", 30_000, patient));
            assert!(tokio::time::timeout(Duration::from_millis(50), cancelled).await.is_err());
        }
        // RELEASE is sent behind this.
        let served = tokio::spawn({
            let locks = locks.clone();
            async move { locks.acquire("door", 30_000, patient).await }
        });
        while waiters_of(&mut client, "door") != 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(client.run("LOCK.RELEASE door holder"), 0);
        served.await.expect("no panic")?.expect("a lock").release().await
    });
    is_left(&mut client);
}

/// A task waits, and whatever is cut while nothing else goes on, it is served.
const ALONE: [(&str, &str); 2] = [
    (
        "python",
        r#"
async def main():
    locks = Locks(port=6379)
    await locks.release("door", await locks.acquire("door", lease_ms=30000, patience_ms=60000))
    await locks.close()


asyncio.run(main())"#,
    ),
    (
        "javascript",
        r#"
const locks = new Locks(6379)
await locks.release('door', await locks.acquire('door', { leaseMs: 30000, patienceMs: 60000 }))
locks.close()"#,
    ),
];

/// Frees the door as soon as connections of the one who waits for it are cut.
#[track_caller]
fn free_and_cut(client: &mut Client, kinds: &[&str]) {
    eventually("it waits", || waiters_of(client, "door") == 1);
    let mut lines: Vec<String> = kinds.iter().map(|kind| format!("CLIENT KILL TYPE {kind} SKIPME yes")).collect();
    lines.push("LOCK.RELEASE door holder".to_owned());
    client.send_together(&lines);
    let killed: i64 = kinds.iter().map(|_| client.receive().int()).sum();
    assert!(killed > 0, "{kinds:?}");
    assert_eq!(client.receive(), 0);
}

#[test]
fn a_task_that_waits_alone_is_served_whichever_connection_is_cut() {
    let installed: Vec<_> = ALONE.into_iter().filter(|(language, _)| is_installed(language)).collect();
    let cases: Vec<_> = installed.iter().flat_map(|program| ONE_BY_ONE.map(|kinds| (program, kinds))).collect();
    for_each(&cases, |((language, tail), kinds)| {
        let (server, mut client) = held("door");
        let mut program = start_with(language, tail, &server);
        free_and_cut(&mut client, kinds);
        assert_eq!(program.said_within(LIMIT), Ok(String::new()), "{language} {kinds:?}");
        is_left(&mut client);
    });
}

#[test]
fn a_task_that_waits_alone_is_served_when_its_connection_is_cut_with_redis_rs() {
    let (server, mut client) = held("door");
    thread::scope(|scope| {
        scope.spawn(|| {
            run(async {
                let locks = Locks::open(&url(&server)).await?;
                let held = locks.acquire("door", 30_000, Duration::from_secs(60)).await?;
                held.expect("a lock").release().await
            });
        });
        free_and_cut(&mut client, &["normal", "pubsub"]);
    });
    is_left(&mut client);
}

#[test]
fn the_guide_shows_the_program_in_rust_that_is_run() {
    let run = fs::read_to_string(repository().join("tests/integration/clients/redis_rs.rs")).expect("a program");
    let (_, run) = run.split_once("\n\n").expect("a line about the file, and the program");
    assert_eq!(two_blocks(MULTIPLEXED, "rust").join("\n\n") + "\n", run);
    assert_eq!(every_block("rust").len(), 4, "no Rust that is not run, here or in clients/recipes.rs");
}
