//! What begins a recovery period, where servers start, stop, load the module and replace each other.

use std::fs::{self, OpenOptions};
use std::time::{Duration, Instant};

use support::process::Process;
use support::replicas::{in_step, in_time, is_master, master, replica_of, replicated};
use support::{Aof, Client, Reply, Server, Setup, Waiter, eventually, info_lock};

/// A period that no test outlives.
const ENDLESS: &str = "lock.recovery-ms 600000";

/// A busy machine may stall a server for over a second, which then grants nothing for this lag and three seconds.
const SHORT_LAG: &str = "min-replicas-max-lag 1";

#[track_caller]
fn remaining_ms(client: &mut Client) -> i64 {
    info_lock(client, "recovery_ms")
}

#[track_caller]
fn end(client: &mut Client) {
    client.ok("CONFIG SET lock.recovery-ms 0");
    assert_eq!(remaining_ms(client), 0);
}

fn load(client: &mut Client) {
    client.ok(&format!("MODULE LOAD {}", support::module_under_test().display()));
}

/// The statistics that a server begins with are no sign of a start, so the second server has none.
#[test]
fn module_loaded_into_running_server_begins_none() {
    for line in ["PING", "CONFIG RESETSTAT"] {
        let server = Setup::new().without_module().start();
        let mut client = server.client();
        assert!(!client.run(line).is_error());
        load(&mut client);
        client.ok(&format!("CONFIG SET {ENDLESS}"));
        assert_eq!(remaining_ms(&mut client), 0);
        assert_eq!(client.run("LOCK.ACQUIRE door alice PX 1000"), 1);
    }
}

#[test]
fn module_is_not_unloaded_in_period() {
    let server = Setup::new().config(ENDLESS).start();
    let mut client = server.client();
    assert!(client.run("MODULE UNLOAD lock").is_error());
    assert!(server.log().contains("lock_recovery_ms"), "{}", server.log());
    end(&mut client);
    eventually("the period is over", || client.run("MODULE UNLOAD lock") == "OK");
    load(&mut client);
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 1000"), 1);
}

#[test]
fn start_begins_period_until_its_end() {
    const PERIOD: Duration = Duration::from_secs(3);
    let since = Instant::now();
    let server = Setup::new().config(SHORT_LAG).config("lock.recovery-ms 3000").start();
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    assert!(remaining_ms(&mut server.client()) > 0);
    assert_eq!(bob.reply(), 1);
    assert!(since.elapsed() >= PERIOD, "the period was over after {:?}", since.elapsed());
}

#[test]
fn log_shows_begin_and_end_of_period() {
    let lines = |server: &Server, text: &str| server.log().matches(text).count();
    let server = Setup::new().config(ENDLESS).start();
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
fn coordinated_failover_begins_period() {
    let old = master("");
    let new = replica_of(&old);
    new.client().ok(&format!("CONFIG SET {ENDLESS}"));
    let failover = format!("FAILOVER TO 127.0.0.1 {}", new.port());
    let mut on_old = old.client();
    eventually("the failover begins", || on_old.run(&failover) == "OK");
    in_time("the replica is the master", || is_master(&new));
    let mut client = new.client();
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 1000"), Reply::Nil);
    assert!(remaining_ms(&mut client) > 0);
}

/// Alice has received a grant that the disk has not: the last command is missing in the file.
#[test]
fn crash_that_loses_grant_does_not_grant_again() {
    let lines = format!("{}\nlock.recovery-ms 0", Aof::CONFIG);
    let mut server = Setup::new().config(&lines).start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE hall carol PX 600000"), 1);
    let file = aof_of(&server);
    let known = fs::metadata(&file).expect("a file").len();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 2000"), 1);
    let granted = Instant::now();
    Process::kill(&mut server);
    OpenOptions::new().write(true).open(file).and_then(|file| file.set_len(known)).expect("a file that can be cut");

    let again = format!("{}\n{SHORT_LAG}\nlock.recovery-ms 3000", Aof::CONFIG);
    let server = Setup::new().config(&again).in_directory_of(&server).start();
    let mut client = server.client();
    assert_eq!(client.run("EXISTS door"), 0, "the grant is lost");
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

#[test]
fn new_master_grants_lock_of_old_one_after_period() {
    let old = master(ENDLESS);
    let new = replica_of(&old);
    let mut alice = old.client();
    alice.ok("CONFIG SET lock.recovery-ms 0");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    replicated(&mut alice, "mark");
    let mut control = new.client();
    control.ok(&format!("CONFIG SET {ENDLESS}"));
    control.ok("REPLICAOF NO ONE");
    old.client().ok(&format!("REPLICAOF 127.0.0.1 {}", new.port()));
    in_step(&old);
    let mut bob = Waiter::start(&new, "LOCK.ACQUIRE door bob BLOCK 0");
    assert_eq!(control.run("LOCK.RELEASE door alice"), 0);
    end(&mut control);
    assert_eq!(bob.reply(), 1);
    eventually("the old master follows", || old.client().run("GET door") == "bob");
}
