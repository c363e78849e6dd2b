//! A master that hears nothing of its replicas any more stops granting within the time that the guide calls S.

use std::time::{Duration, Instant};

use support::process::Process;
use support::replicas::replica_of;
use support::{Setup, eventually};

/// The shortest lag that can be set, and what the guide says of it: `min-replicas-max-lag` + 3 s, and `repl-timeout`.
const LINES: &str = "min-replicas-to-write 1\nmin-replicas-max-lag 1\nrepl-timeout 4\nrepl-ping-replica-period 1\n\
                     lock.recovery-ms 1";
const S: Duration = Duration::from_secs(4);
/// What a busy machine may add. The servers alone take 8 s and more where their loop is slow.
const SLACK: Duration = Duration::from_secs(2);

/// Returns for how long a master grants after it was cut off, of which each round lasts as long as this command.
#[track_caller]
fn grants_for(lines: &str, round: &str) -> Duration {
    let master = Setup::new().config(LINES).config(lines).start();
    let replica = replica_of(&master);
    let mut client = master.client();
    eventually("it grants", || client.run("LOCK.ACQUIRE door alice PX 10000") == 1);
    let replica = Process::of(&replica);
    replica.stop();
    let since = Instant::now();
    let mut last = Duration::ZERO;
    for number in 0.. {
        client.ok(round);
        let reply = client.run(&format!("LOCK.ACQUIRE door-{number} alice PX 10000"));
        if reply == 1 {
            last = since.elapsed();
        } else if reply.is_error() {
            assert_eq!(reply.code(), "NOREPLICAS");
            break;
        }
        if since.elapsed() > 2 * S {
            break;
        }
    }
    replica.resume();
    last
}

#[test]
fn idle_master_stops_granting() {
    let lasted = grants_for("", "DEBUG SLEEP 0.01");
    assert!(lasted <= S + SLACK, "it grants for {lasted:?}");
}

/// The server itself checks its replicas in some runs of its cron only. No command is long enough for a stall.
#[test]
fn master_with_slow_commands_stops_granting() {
    let lasted = grants_for("", "DEBUG SLEEP 0.9");
    assert!(lasted <= S + SLACK, "it grants for {lasted:?}");
}

#[test]
fn master_with_late_fast_cron_stops_granting() {
    let lasted = grants_for("hz 500", "DEBUG SLEEP 0.02");
    assert!(lasted <= S + SLACK, "it grants for {lasted:?}");
}
