//! Whether the replies of waiters are sent by the server's I/O threads, if it has any. scripts/test runs this and other tests
//! with I/O threads.

use support::{Client, Server, Waiting, Way, eventually, info_lock};

/// Returns the number of replies that the server's I/O threads have sent.
fn sent_by_threads(client: &mut Client) -> i64 {
    let count = client.info("stats", "io_threaded_writes_processed").expect("the counter");
    count.parse().expect("a number")
}

#[test]
fn many_waiters_receive_replies_by_io_threads() {
    const LOCKS: i64 = 64;
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
    assert_eq!(sent_by_threads(&mut alice) > before, server.has_io_threads(), "the threads are used, if there are any");
}
