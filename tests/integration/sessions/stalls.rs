//! Sessions where the server cannot renew or must not: a stall or a pause that is longer than the lease, a server that
//! takes no writes, a replica. What is written otherwise, and how it goes with very many.

use support::parallel::for_each;
use support::replicas::{self, replica_of};
use support::sessions::{is_renewed, runs_out, session_of};
use support::{
    Aof, Client, OBSERVATION, Reply, Server, Setup, Waiter, eventually, field, info_lock, never_within, now_ms,
    waiters_of,
};

const LEASE_MS: i64 = 150;

/// How the lock is taken, with how many holds.
const KINDS: [(&str, i64); 2] = [("LOCK.ACQUIRE", 1), ("LOCK.REENTER", 3)];

#[track_caller]
fn hold(client: &mut Client, take: &str, holds: i64) {
    hold_for(client, take, holds, LEASE_MS);
}

#[track_caller]
fn hold_for(client: &mut Client, take: &str, holds: i64, lease_ms: i64) {
    assert_eq!(client.run(&format!("{take} door alice PX {lease_ms} SESSION")), 1);
    for hold in 2..=holds {
        assert_eq!(client.run(&format!("{take} door alice")), hold);
    }
}

/// `alice` holds `door` as before and the lease is renewed again; `bob` still waits.
#[track_caller]
fn is_alices_again(alice: &mut Client, bob: &Waiter, holds: i64) {
    eventually("alice has it back", || field(alice, "door", "owner") == "alice");
    assert_eq!(field(alice, "door", "holds"), holds);
    assert_eq!(session_of(alice, "door"), [alice.id()]);
    is_renewed(alice, "door");
    assert!(bob.is_blocked(), "a waiter has overtaken the session");
    assert_eq!(field(alice, "door", "owner"), "alice");
}

#[test]
fn a_stall_longer_than_the_lease_does_not_lose_the_lock_to_a_waiter() {
    let cases: Vec<_> = KINDS.iter().flat_map(|kind| [(kind, 0), (kind, 1)]).collect();
    for_each(&cases, |((take, holds), active_expiry)| {
        let server = Server::start();
        let (mut alice, mut control) = (server.client(), server.client());
        control.ok(&format!("DEBUG SET-ACTIVE-EXPIRE {active_expiry}"));
        hold(&mut alice, take, *holds);
        let bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        let end = control.expires_at("door");
        control.ok("DEBUG SLEEP 0.5");
        assert!(now_ms() > end, "the stall was longer than the lease");
        is_alices_again(&mut alice, &bob, *holds);
    });
}

/// The first command after a stall, found by the server in the very buffer, before any timer could run.
#[track_caller]
fn first_after_a_stall(take: &str, holds: i64, line: &str) -> Reply {
    let server = Server::start();
    let (mut alice, mut control) = (server.client(), server.client());
    hold(&mut alice, take, holds);
    let end = control.expires_at("door");
    control.send_together(&["DEBUG SLEEP 0.4", line]);
    assert_eq!(control.receive(), "OK");
    let reply = control.receive();
    assert!(now_ms() > end, "the stall was longer than the lease");
    reply
}

#[test]
fn no_other_lock_request_comes_before_the_session() {
    for_each(&KINDS, |&(take, holds)| {
        for thief in ["LOCK.ACQUIRE door thief", "LOCK.REENTER door thief PX 60000"] {
            assert_eq!(first_after_a_stall(take, holds, thief), Reply::Nil, "{take} {thief}");
        }
        let asks = first_after_a_stall(take, holds, "LOCK.EXTEND door alice PX 150");
        assert_eq!(asks, 150, "{take}: it is held");
        let draws = first_after_a_stall(take, holds, "LOCK.FENCE door alice counter");
        assert!(!draws.is_error(), "{take}: the holder draws: {draws:?}");
        let gives_up = first_after_a_stall(take, holds, "LOCK.RELEASE door alice");
        assert_eq!(gives_up, holds - 1, "{take}");
    });
}

/// While `refuse` is in force nothing is renewed; when it is over, the session is served before the waiter.
#[track_caller]
fn nothing_is_renewed_while(refuse: &str, allow: &str) {
    for_each(&KINDS, |&(take, holds)| {
        let server = Setup::new().config(Aof::CONFIG).start();
        let (mut alice, mut control) = (server.client(), server.client());
        hold(&mut alice, take, holds);
        let bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        is_renewed(&mut control, "door");
        control.ok(refuse);
        let (end, written) = (control.expires_at("door"), server.aof().commands());
        eventually("the lease ends", || {
            let now = control.expires_at("door");
            assert!(now == end || now == -2, "{refuse}: renewed from {end} to {now}");
            now == -2
        });
        never_within(OBSERVATION, "somebody has the lock", || control.run("EXISTS door") == 1 || !bob.is_blocked());
        let since = server.aof().commands().split_off(written.len());
        // That the key is gone may be written where the server expires keys at such a time.
        assert!(since.iter().all(|line| ["DEL door", "UNLINK door"].contains(&line.as_str())), "{refuse}: {since:?}");
        control.ok(allow);
        is_alices_again(&mut alice, &bob, holds);
    });
}

#[test]
fn a_pause_longer_than_the_lease() {
    nothing_is_renewed_while("CLIENT PAUSE 60000 WRITE", "CLIENT UNPAUSE");
}

#[test]
fn too_few_replicas_for_longer_than_the_lease() {
    nothing_is_renewed_while("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0");
}

#[test]
fn a_pause_of_everything() {
    let server = Server::start();
    let (mut alice, mut control) = (server.client(), server.client());
    hold(&mut alice, "LOCK.ACQUIRE", 1);
    let bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    let paused_at = now_ms();
    control.ok("CLIENT PAUSE 400 ALL");
    is_alices_again(&mut alice, &bob, 1);
    assert!(now_ms() >= paused_at + 400, "nothing is answered in the pause");
}

#[test]
fn a_server_that_becomes_a_replica_renews_and_writes_nothing_and_the_session_is_over() {
    for_each(&KINDS, |&(take, _)| {
        let server = Setup::new().config(Aof::CONFIG).start();
        let (mut alice, mut control) = (server.client(), server.client());
        // Long enough that what is asked next still meets it, however slow the disk of the append-only file is.
        assert_eq!(alice.run(&format!("{take} door alice PX 1500 SESSION")), 1);
        is_renewed(&mut control, "door");
        control.ok("REPLICAOF 127.0.0.1 1");
        let written = server.aof().commands().len();
        assert_eq!(info_lock(&mut control, "sessions"), 0);
        runs_out(&mut control, "door");
        assert_eq!(control.run("LOCK.ACQUIRE gate alice PX 60000 SESSION").code(), "READONLY");
        drop(alice);
        assert_eq!(server.aof().commands().split_off(written), [] as [String; 0]);
        control.ok("REPLICAOF NO ONE");
        control.ok("SET door alice PX 1000");
        runs_out(&mut control, "door");
    });
}

#[test]
fn a_replica_follows_the_renewals_and_its_promotion_ends_them() {
    let master = replicas::master("");
    let replica = replica_of(&master);
    let (mut alice, mut on_replica) = (master.client(), replica.client());
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600 SESSION"), 1);
    eventually("the lock arrives", || on_replica.run("GET door") == "alice");
    is_renewed(&mut on_replica, "door");
    assert_eq!(session_of(&mut on_replica, "door"), [] as [i64; 0]);
    on_replica.ok("REPLICAOF NO ONE");
    runs_out(&mut on_replica, "door");
    is_renewed(&mut alice, "door");
}

#[test]
fn a_renewal_is_written_as_an_absolute_time_and_nothing_else() {
    for (take, holds) in KINDS {
        let server = Setup::new().config(Aof::CONFIG).start();
        let mut alice = server.client();
        hold_for(&mut alice, take, holds, 600);
        let before = server.aof().commands().len();
        for _ in 0..4 {
            is_renewed(&mut alice, "door");
        }
        let written = server.aof().commands().split_off(before);
        let ends: Vec<i64> = written
            .iter()
            .map(|line| line.strip_prefix("PEXPIREAT door ").unwrap_or_else(|| panic!("{take}: {written:?}")))
            .map(|end| end.parse().expect("a time"))
            .collect();
        assert!(ends.len() >= 4 && ends.windows(2).all(|pair| pair[0] < pair[1]), "{take}: {written:?}");
    }
}

#[test]
fn the_release_of_a_closed_connection_is_written_as_a_del() {
    for (take, holds) in KINDS {
        let server = Setup::new().config(Aof::CONFIG).start();
        let (mut alice, mut control) = (server.client(), server.client());
        assert_eq!(alice.run(&format!("{take} door alice PX 600000 SESSION")), 1);
        for hold in 2..=holds {
            assert_eq!(alice.run(&format!("{take} door alice")), hold);
        }
        let before = server.aof().commands().len();
        drop(alice);
        eventually("the lock is released", || control.run("EXISTS door") == 0);
        assert_eq!(server.aof().commands().split_off(before), ["DEL door"], "{take}");
    }
}

#[test]
fn the_module_cannot_be_unloaded_while_a_lock_belongs_to_a_connection() {
    let server = Server::start();
    let (mut alice, mut control) = (server.client(), server.client());
    assert_eq!(alice.run("LOCK.REENTER door alice PX 500 SESSION"), 1);
    assert_eq!(control.run("LOCK.ACQUIRE gate alice PX 500"), 1);
    for _ in 0..50 {
        assert!(control.run("MODULE UNLOAD lock").error().starts_with("ERR Error unloading module"));
    }
    let why = "module lock is not unloaded: locks belong to connections";
    eventually("the log says why", || server.log().contains(why));
    is_renewed(&mut control, "door");
    drop(alice);
    eventually("the module can be unloaded", || control.run("MODULE UNLOAD lock") == "OK");
    assert_eq!(control.run("EXISTS door"), 0, "the session ended with its connection");
}

/// It would end before the next renewal is due.
#[test]
fn a_shorter_lease_that_a_swap_puts_in_its_place_is_renewed() {
    let server = Server::start();
    let (mut alice, mut control) = (server.client(), server.client());
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 30000 SESSION"), 1);
    control.send_together(&["SELECT 1", "LOCK.ACQUIRE door alice PX 2000", "SELECT 0", "SWAPDB 0 1"]);
    assert!((0..4).all(|_| !control.receive().is_error()));
    eventually("the lease is the session's", || control.run("PTTL door").int() > 20_000);
}

/// What empties or exchanges databases and leaves this lock where it was.
#[test]
fn a_lock_that_stays_stays_the_sessions() {
    let cases: Vec<_> = KINDS
        .iter()
        .flat_map(|kind| ["DEBUG RELOAD", "SWAPDB 0 0", "SWAPDB 1 2"].map(|line| (kind, line)))
        .chain([(&KINDS[0], "FLUSHDB elsewhere")])
        .collect();
    for_each(&cases, |&((take, holds), line)| {
        let server = Server::start();
        let (mut alice, mut control) = (server.client(), server.client());
        hold(&mut alice, take, *holds);
        let bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        let mut other = server.client();
        if line == "FLUSHDB elsewhere" {
            other.ok("SELECT 5");
            other.ok("FLUSHDB");
        } else {
            other.ok(line);
        }
        is_alices_again(&mut alice, &bob, *holds);
        drop(bob);
        eventually("bob has left", || waiters_of(&mut control, "door") == 0);
        drop(alice);
        eventually("the lock is released", || control.run("EXISTS door") == 0);
    });
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
    assert_eq!(control.info("stats", "expired_keys").as_deref(), Some("0"), "released, not run out");
    assert_eq!(info_lock(&mut control, "sessions"), 0);
}
