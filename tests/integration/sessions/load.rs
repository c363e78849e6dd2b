//! Sessions of very many connections, and connections that are cut again and again.

use support::parallel::for_each;
use support::sessions::is_connected;
use support::{Client, Server, Waiter, bytes_of, eventually, field, info_lock, now_ms, waiters_of};

/// How much later than due the server may do something on a busy machine, in milliseconds.
const LATE_MS: i64 = 500;

/// Closes a connection, and returns between which times the server must have noticed it.
#[track_caller]
fn close(server: &Server, client: Client) -> (i64, i64) {
    let mut control = server.client();
    let (id, begin) = (client.id(), now_ms());
    drop(client);
    eventually("the connection is closed", || !is_connected(&mut control, id));
    (begin, now_ms())
}

#[test]
fn several_thousand_sessions_are_renewed_and_released() {
    const CONNECTIONS: usize = 400;
    const LOCKS_EACH: usize = 10;
    // The earliest end of all leases, -2 if a lock is missing.
    const EARLIEST: &str = "local first = redis.call('PEXPIRETIME', KEYS[1])
        for _, key in ipairs(KEYS) do first = math.min(first, redis.call('PEXPIRETIME', key)) end return first";
    let server = Server::start();
    let mut control = server.client();
    let mut keys = Vec::new();
    let connections: Vec<Client> = (0..CONNECTIONS)
        .map(|number| {
            let mut client = server.client();
            let names: Vec<String> = (0..LOCKS_EACH).map(|lock| format!("lock-{number}-{lock}")).collect();
            let lines: Vec<String> =
                names.iter().map(|key| format!("LOCK.ACQUIRE {key} {number} PX 3000 SESSION")).collect();
            client.send_together(&lines);
            assert!((0..LOCKS_EACH).all(|_| client.receive() == 1));
            keys.extend(names);
            client
        })
        .collect();
    assert_eq!(info_lock(&mut control, "sessions"), i64::try_from(keys.len()).unwrap());
    let all_taken = now_ms();
    let count = keys.len().to_string();
    let mut earliest = ["EVAL", EARLIEST, &count].map(str::to_owned).to_vec();
    earliest.extend(keys);
    // Every lease now ends later than it could without a renewal.
    eventually("all are renewed", || control.call(&earliest).int() > all_taken + 3000);
    drop(connections);
    eventually("all are released", || control.run("DBSIZE") == 0);
    assert_eq!(control.info("stats", "expired_keys").as_deref(), Some("0"), "released, not expired");
    assert_eq!(info_lock(&mut control, "sessions"), 0);
}

/// Other clients contend for the locks. A client that comes back in time keeps its lock. One that does not loses it at the end of its
/// grace period.
#[test]
fn thousand_cuts_under_load() {
    const LOCKS: usize = 20;
    const CUTS: usize = 50;
    let server = Server::start();
    for_each(&(0..LOCKS).collect::<Vec<_>>(), |number| {
        let take = format!("LOCK.ACQUIRE door{number} alice{number} PX 60000 SESSION GRACE 30000");
        let mut rival = Waiter::send(&server, &format!("LOCK.ACQUIRE door{number} rival PX 60000 BLOCK 0"));
        assert_eq!(rival.reply(), 1);
        let mut rival = rival.into_ready();
        assert_eq!(rival.run(&format!("LOCK.RELEASE door{number} rival")), 0);
        let mut alice = server.client();
        assert_eq!(alice.run(&take), 1);
        let rival = Waiter::start_on(&server, rival, &bytes_of(&format!("LOCK.ACQUIRE door{number} rival BLOCK 0")));
        for cut in 0..CUTS {
            drop(std::mem::replace(&mut alice, server.client()));
            assert_eq!(alice.run("PING"), "PONG");
            assert_eq!(alice.run(&format!("GET door{number}")), format!("alice{number}").as_str(), "cut {cut}");
            assert_eq!(alice.run(&take), 1, "cut {cut}");
            assert!(alice.run(&format!("LOCK.FENCE door{number} alice{number} counter{number}")).int() > 0);
        }
        assert!(rival.is_blocked());
        assert_eq!(alice.run(&format!("LOCK.RELEASE door{number} alice{number}")), 0);
        let mut rival = rival;
        assert_eq!(rival.reply(), 1);
        let mut rival = rival.into_ready();
        assert_eq!(rival.run(&format!("LOCK.RELEASE door{number} rival")), 0);
        let mut alice = server.client();
        assert_eq!(alice.run(&take.replace("30000", "100")), 1);
        let mut rival =
            Waiter::start_on(&server, rival, &bytes_of(&format!("LOCK.ACQUIRE door{number} rival BLOCK 0")));
        let (begin, end) = close(&server, alice);
        assert_eq!(rival.reply(), 1);
        assert!((begin + 100..end + 100 + LATE_MS).contains(&now_ms()), "held beyond its grace period, or cut short");
    });
    let mut control = server.client();
    assert_eq!((info_lock(&mut control, "sessions"), waiters_of(&mut control, "door0")), (0, 0));
    assert_eq!(field(&mut control, "door0", "owner"), "rival");
}
