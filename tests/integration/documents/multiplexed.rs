//! Runs the programs of examples/shared_connection. 1,000 tasks contend for 10 locks, and each program checks that no
//! two tasks hold one lock. The leases are longer than the test: a lost grant fails it.

use std::time::Duration;

use support::parallel::for_each;
use support::{Client, Reply, Server, eventually, happens_within, info_lock, waiters_of};

use super::blocks::{MULTIPLEXED, two_parts};
use super::programs::{Running, calls, is_installed};

/// How long a program may take on a busy machine. On an idle one it takes 3 s at most.
const LIMIT: Duration = Duration::from_secs(30);

/// The connections that are cut after 100, 400 and 700 holds: the one that asks, the one that listens, and both.
const CUTS: [(usize, &[&str]); 3] = [(100, &["normal"]), (400, &["pubsub"]), (700, &["normal", "pubsub"])];

/// What follows the code to copy: of three tasks that wait for a lock, one has little patience, one is cancelled, and one
/// is granted the lock.
const WITHDRAWING: [(&str, &str); 2] = [
    (
        "python",
        r#"
async def main():
    locks = Locks(port=6379)
    assert await locks.acquire("door", lease_ms=30000, patience_ms=50) is None
    granted, cancelled = (asyncio.create_task(locks.acquire("door", 30000, 60000)) for _ in range(2))
    while len(await locks.client.execute_command("LOCK.WAITERS", "door")) < 2:
        await asyncio.sleep(0.01)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert cancelled.cancelled()
    await locks.release("door", "holder")
    await locks.release("door", await granted)
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
const granted = locks.acquire('door', patient)
const cancelled = locks.acquire('door', { ...patient, signal: stop.signal })
while ((await locks.client.call('LOCK.WAITERS', 'door')).length < 2) {}
stop.abort()
assert(await cancelled === null)
await locks.release('door', 'holder')
await locks.release('door', await granted)
locks.close()"#,
    ),
];

/// Runs a test for each language that can be run here.
fn for_each_language(check: impl Fn(&'static str, &'static str) + Sync) {
    let installed: Vec<_> = WITHDRAWING.into_iter().filter(|(language, _)| is_installed(language)).collect();
    for_each(&installed, |(language, tail)| check(language, tail));
}

/// A server where `holder` has a lock.
fn held(door: &str) -> (Server, Client) {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run(&format!("LOCK.ACQUIRE {door} holder PX 60000")), 1);
    (server, client)
}

#[test]
fn thousand_tasks_get_locks_over_cut_connections() {
    for_each_language(|language, _| {
        let (server, mut client) = held("door:0");
        let shown = two_parts(MULTIPLEXED, language).join("\n\n");
        let mut program = Running::start(language, &shown, server.port());
        for (holds, kinds) in CUTS {
            let in_time = happens_within(LIMIT, || program.has_ended() || calls(&mut client, "lock.fence") >= holds);
            assert!(in_time, "{language}: tasks wait after {} holds", calls(&mut client, "lock.fence"));
            let mut kill = |kind: &&str| client.run(&format!("CLIENT KILL TYPE {kind} SKIPME yes")).int();
            // The program may not have reconnected yet. One that has ended has failed, and prints the reason.
            eventually("a connection is cut", || program.has_ended() || kinds.iter().map(&mut kill).sum::<i64>() > 0);
        }
        // Tasks wait for this lock through all cuts.
        assert_eq!(client.run("LOCK.RELEASE door:0 holder"), 0);
        assert_eq!(program.output_within(LIMIT), Ok("1000 tasks held a lock alone\n".to_owned()), "{language}");
        assert!(calls(&mut client, "lock.fence") >= 1000);
        assert_eq!(info_lock(&mut client, "waiters"), 0);
        assert_eq!(info_lock(&mut client, "handovers_expiry"), 0, "a grant to no task");
        assert_eq!(client.run("KEYS door:*"), Reply::list([]));
    });
}

#[test]
fn task_that_cancels_its_wait_leaves_queue() {
    for_each_language(|language, tail| {
        let (server, mut client) = held("door");
        let [copied, _] = two_parts(MULTIPLEXED, language);
        let mut program = Running::start(language, &(copied + tail), server.port());
        assert_eq!(program.output_within(LIMIT), Ok(String::new()), "{language}");
        eventually("no task waits", || waiters_of(&mut client, "door") == 0);
        eventually("no task holds", || client.run("EXISTS door") == 0);
        assert_eq!(info_lock(&mut client, "handovers_expiry"), 0, "{language}");
    });
}
