//! Waiters whose answers leave by the server's I/O threads, where it has any: `SERVER_CONFIG="io-threads 2"` runs this and
//! any other test with them.

use support::{Client, Server, Waiting, Way, eventually, info_lock};

const LOCKS: i64 = 64;

/// How many threads read and write for the server's clients.
fn threads(client: &mut Client) -> i64 {
    let pair = client.run("CONFIG GET io-threads");
    pair.items().get(1).expect("a value").string().parse().expect("a number")
}

/// How many answers they have sent.
fn sent_by_threads(client: &mut Client) -> i64 {
    let count = client.info("stats", "io_threaded_writes_processed").expect("the counter");
    count.parse().expect("a number")
}

#[test]
fn many_waiters_that_are_served_at_once_are_all_answered() {
    let server = Server::start();
    let mut alice = server.client();
    let mut waiters: Vec<Waiting> = (0..LOCKS)
        .zip(Way::ALL.iter().cycle())
        .map(|(number, way)| {
            assert_eq!(alice.run(&format!("LOCK.ACQUIRE lock{number} alice")), 1);
            way.send(&server, &format!("LOCK.ACQUIRE lock{number} bob BLOCK 0"))
        })
        .collect();
    eventually("all wait", || info_lock(&mut alice, "waiters") == LOCKS);
    let before = sent_by_threads(&mut alice);
    let lines: Vec<String> = (0..LOCKS).map(|number| format!("LOCK.RELEASE lock{number} alice")).collect();
    alice.send_together(&lines);
    assert!(lines.iter().all(|_| alice.receive() == 0));
    waiters.iter_mut().for_each(|waiter| assert_eq!(waiter.reply(), 1));
    let used = sent_by_threads(&mut alice) > before;
    assert_eq!(used, threads(&mut alice) > 1, "the threads are used, if there are any");
}
