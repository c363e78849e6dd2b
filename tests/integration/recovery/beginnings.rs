//! What begins a period, and what does not.

use std::fs::{self, OpenOptions};
use std::time::{Duration, Instant};

use support::process::Process;
use support::replicas::{in_time, is_master, master, replica_of, replicated};
use support::{Aof, Reply, Server, Setup, Waiter, eventually};

use super::held_back::{PERIOD, SHORT_LAG, WITHOUT_END, end, has_lasted, in_a_period, remaining_ms};

fn load(server: &Server) {
    server.client().ok(&format!("MODULE LOAD {}", support::module_under_test().display()));
}

#[test]
fn a_module_that_is_loaded_into_a_running_server_begins_none() {
    let server = Setup::new().without_module().start();
    load(&server);
    let mut client = server.client();
    client.ok(&format!("CONFIG SET {WITHOUT_END}"));
    assert_eq!(remaining_ms(&mut client), 0);
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 1000"), 1);
}

#[test]
fn a_module_that_is_loaded_into_a_server_without_another_client_begins_none() {
    // The statistics that a server begins with are no sign of a start.
    let server = Setup::new().without_module().start();
    let mut client = server.client();
    client.ok("CONFIG RESETSTAT");
    load(&server);
    client.ok(&format!("CONFIG SET {WITHOUT_END}"));
    assert_eq!(remaining_ms(&mut client), 0);
}

#[test]
fn the_module_is_not_unloaded_while_there_is_one() {
    let server = in_a_period();
    let mut client = server.client();
    assert!(client.run("MODULE UNLOAD lock").is_error());
    assert!(server.log().contains("lock_recovery_ms"), "{}", server.log());
    end(&mut client);
    eventually("it is over", || client.run("MODULE UNLOAD lock") == "OK");
    load(&server);
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 1000"), 1);
}

#[test]
fn a_flush_a_reload_and_a_stay_as_master_begin_none() {
    let server = in_a_period();
    let mut client = server.client();
    eventually("it has lasted for a while", || remaining_ms(&mut client) < 599_000);
    for line in ["FLUSHALL", "FLUSHDB", "DEBUG RELOAD", "SWAPDB 0 1", "REPLICAOF NO ONE"] {
        client.ok(line);
        assert!(remaining_ms(&mut client) < 599_000, "{line} begins a period");
    }
}

#[test]
fn the_setting_counts_from_the_same_moment_whenever_it_is_set() {
    let server = Setup::new().config(SHORT_LAG).start();
    let since = Instant::now();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    client.ok("CONFIG SET lock.recovery-ms 1");
    // The server may have started less than two milliseconds ago.
    eventually("that has passed", || client.run("LOCK.ACQUIRE hall alice PX 600000") == 1);
    client.ok(&format!("CONFIG SET lock.recovery-ms {}", PERIOD.as_millis()));
    let remaining = remaining_ms(&mut client);
    let most = PERIOD.saturating_sub(since.elapsed().saturating_sub(Duration::from_millis(500)));
    assert!(u128::try_from(remaining).unwrap() <= most.as_millis(), "{remaining} ms remain");
    client.ok("CONFIG SET lock.recovery-ms 600000");
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE kitchen bob BLOCK 0");
    end(&mut client);
    assert_eq!(bob.reply(), 1, "0 ends a period at once");
}

#[test]
fn what_is_held_back_between_two_settings_in_one_round_is_served() {
    let server = Server::start();
    let (mut bob, mut control) = (server.client(), server.client());
    bob.send_together(&["CONFIG SET lock.recovery-ms 600000", "LOCK.ACQUIRE door bob BLOCK 0"]);
    assert_eq!(bob.receive(), "OK");
    end(&mut control);
    assert_eq!(bob.receive(), 1);
    let mut carol = server.client();
    carol.send_together(&["MULTI", "CONFIG SET lock.recovery-ms 600000", "EXEC", "LOCK.ACQUIRE hall carol BLOCK 5000"]);
    (0..3).for_each(|_| assert!(!carol.receive().is_error()));
    end(&mut control);
    assert_eq!(carol.receive(), 1);
}

#[test]
fn the_log_tells_when_it_begins_and_ends_and_nothing_while_there_is_none() {
    let lines = |server: &Server, text: &str| server.log().matches(text).count();
    let server = in_a_period();
    eventually("it has begun", || lines(&server, "nobody is granted a lock for") == 1);
    end(&mut server.client());
    eventually("it has ended", || lines(&server, "locks are granted again") == 1);
    let server = Server::start();
    server.client().ok("REPLICAOF 127.0.0.1 1");
    server.client().ok("REPLICAOF NO ONE");
    assert_eq!(server.client().run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(lines(&server, "granted"), 0, "{}", server.log());
}

#[test]
fn each_promotion_begins_one() {
    let server = Setup::new().config(SHORT_LAG).start();
    let mut client = server.client();
    client.ok(&format!("CONFIG SET lock.recovery-ms {}", PERIOD.as_millis()));
    eventually("the start is over", || remaining_ms(&mut client) == 0);
    for _ in 0..2 {
        client.ok("REPLICAOF 127.0.0.1 1");
        let since = Instant::now();
        client.ok("REPLICAOF NO ONE");
        assert_eq!(client.run("LOCK.ACQUIRE door alice PX 1000"), Reply::Nil);
        eventually("the lock is granted", || client.run("LOCK.ACQUIRE door alice PX 60000") == 1);
        has_lasted(since);
        assert_eq!(client.run("LOCK.RELEASE door alice"), 0);
    }
}

#[test]
fn a_coordinated_failover_begins_one() {
    let old = master("");
    let new = replica_of(&old);
    let mut control = new.client();
    control.ok(&format!("CONFIG SET {WITHOUT_END}"));
    let failover = format!("FAILOVER TO 127.0.0.1 {}", new.port());
    let mut on_old = old.client();
    eventually("the failover begins", || on_old.run(&failover) == "OK");
    in_time("the replica is the master", || is_master(&new));
    let mut client = new.client();
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 1000"), Reply::Nil);
    assert!(remaining_ms(&mut client) > 0);
}

/// The server has told alice of her lock, and its disk has not: the last command is not in the file.
#[test]
fn a_crash_that_forgets_the_last_grant_does_not_grant_it_to_another() {
    let lines = format!("{}\nlock.recovery-ms 0", Aof::CONFIG);
    let mut server = Setup::new().config(&lines).start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE hall carol PX 600000"), 1);
    let known = size_of_aof(&server);
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 2000"), 1);
    let granted = Instant::now();
    Process::kill(&mut server);
    let file = OpenOptions::new().write(true).open(aof_of(&server)).expect("a file that can be written");
    file.set_len(known).expect("a file that can be cut");

    let again = format!("{}\n{SHORT_LAG}\nlock.recovery-ms {}", Aof::CONFIG, PERIOD.as_millis());
    let server = Setup::new().config(&again).in_directory_of(&server).start();
    let mut client = server.client();
    assert_eq!(client.run("EXISTS door"), 0, "the grant is forgotten");
    assert_eq!(client.run("LOCK.INFO hall").get("owner"), "carol", "what was written is not");
    assert_eq!(client.run("LOCK.ACQUIRE door bob PX 1000"), Reply::Nil);
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 1000 BLOCK 0");
    assert_eq!(bob.reply(), 1);
    assert!(granted.elapsed() >= Duration::from_secs(2), "alice's lease has ended");
}

fn aof_of(server: &Server) -> std::path::PathBuf {
    let folder = fs::read_dir(server.directory().join("appendonlydir")).expect("a folder with the append-only files");
    let mut files = folder.map(|entry| entry.expect("an entry").path());
    files.find(|path| path.to_string_lossy().ends_with(".incr.aof")).expect("an incremental append-only file")
}

fn size_of_aof(server: &Server) -> u64 {
    fs::metadata(aof_of(server)).expect("a file").len()
}

#[test]
fn a_replica_grants_nothing_anyway_and_its_period_begins_with_its_promotion() {
    let old = master("");
    let new = replica_of(&old);
    let mut control = new.client();
    control.ok(&format!("CONFIG SET {SHORT_LAG}"));
    control.ok(&format!("CONFIG SET lock.recovery-ms {}", PERIOD.as_millis()));
    replicated(&mut old.client(), "mark");
    assert_eq!(control.run("LOCK.ACQUIRE door alice PX 1000").code(), "READONLY");
    let since = Instant::now();
    control.ok("REPLICAOF NO ONE");
    let mut bob = Waiter::start(&new, "LOCK.ACQUIRE door bob BLOCK 0");
    assert_eq!(bob.reply(), 1);
    has_lasted(since);
}
