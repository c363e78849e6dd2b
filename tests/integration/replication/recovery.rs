//! When a server begins a recovery period (`lock.recovery-ms`), and when a master that lost its replicas stops to grant locks.
//! Most tests are scenarios, in tests/scenarios/recovery.

use std::fs::{self, OpenOptions};
use std::time::{Duration, Instant};

use support::parallel::for_each;
use support::process::Process;
use support::replicas::replica_of;
use support::{Aof, Reply, Server, Setup, Waiter, eventually, info_lock, module_under_test};

/// A busy machine may stall a server for over a second, which then grants nothing for this lag and three seconds.
const SHORT_LAG: &str = "min-replicas-max-lag 1";

/// The statistics that a server begins with are no sign of a start, so the second server has none.
#[test]
fn module_loaded_into_running_server_begins_none() {
    for line in ["PING", "CONFIG RESETSTAT"] {
        let server = Setup::new().without_module().start();
        let mut client = server.client();
        assert!(!client.run(line).is_error());
        client.ok(&format!("MODULE LOAD {}", module_under_test().display()));
        client.ok("CONFIG SET lock.recovery-ms 600000");
        assert_eq!(info_lock(&mut client, "recovery_ms"), 0);
        assert_eq!(client.run("LOCK.ACQUIRE door alice PX 1000"), 1);
    }
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

/// With the shortest lag that can be set: `min-replicas-max-lag` and 3 s, and `repl-timeout`. docs/guides/failover.md calls this
/// time S.
const S: Duration = Duration::from_secs(4);
/// What a busy machine may add. The servers alone take 8 s and more where their loop is slow.
const SLACK: Duration = Duration::from_secs(2);

/// The server itself checks its replicas in some runs of its cron only. No command here is long enough for a stall.
#[test]
fn master_without_its_replica_stops_granting() {
    for_each(&[("hz 10", "DEBUG SLEEP 0.9"), ("hz 500", "DEBUG SLEEP 0.02")], |(config, slow)| {
        let lines = "min-replicas-to-write 1\nrepl-timeout 4\nrepl-ping-replica-period 1\nlock.recovery-ms 1";
        let master = Setup::new().config(lines).config(SHORT_LAG).config(config).start();
        let replica = replica_of(&master);
        let mut client = master.client();
        eventually("it grants", || client.run("LOCK.ACQUIRE door alice PX 10000") == 1);
        let replica = Process::of(&replica);
        replica.stop();
        let since = Instant::now();
        let mut last = Duration::ZERO;
        for number in 0.. {
            client.ok(slow);
            let reply = client.run(&format!("LOCK.ACQUIRE door-{number} alice PX 10000"));
            if reply == 1 {
                last = since.elapsed();
            }
            if since.elapsed() > S + SLACK + Duration::from_secs(1) || reply.is_error() {
                break;
            }
        }
        replica.resume();
        assert!(last <= S + SLACK, "{config}: it grants for {last:?}");
    });
}
