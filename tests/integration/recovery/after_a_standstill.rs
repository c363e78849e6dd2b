//! A master that stood still may have been replaced meanwhile. With `lock.recovery-ms` it grants nothing, and lengthens no
//! lease, before it must have learned of that.

use std::time::{Duration, Instant};

use support::parallel::for_each;
use support::process::Process;
use support::{OBSERVATION, Reply, Server, Setup, Waiter, eventually, field, info_lock, never_within};

use super::held_back::{end, remaining_ms};

/// The shortest lag that can be set, in seconds, and how long nothing is granted after a standstill then.
const LAG: &str = "lock.recovery-ms 1\nmin-replicas-max-lag 1";
const HELD_BACK: Duration = Duration::from_secs(4);

/// How the server stands still.
#[derive(Clone, Copy, Debug)]
enum Standstill {
    /// In a command that takes long.
    Slow,
    /// As a process, with what arrives meanwhile in its buffers.
    Frozen,
}

/// A server where alice holds `door` and `hall`, in step with its setting.
#[track_caller]
fn with_a_holder(lines: &str) -> Server {
    let server = Setup::new().config(lines).start();
    let mut client = server.client();
    eventually("the start is over", || client.run("LOCK.ACQUIRE door alice PX 600000") == 1);
    assert_eq!(client.run("LOCK.REENTER hall alice PX 600000"), 1);
    assert_eq!(client.run("LOCK.SHARE yard alice PX 600000"), 1);
    server
}

/// What these commands are answered, the first ones after a standstill.
#[track_caller]
fn first_after(standstill: Standstill, server: &Server, lines: &[&str]) -> Vec<Reply> {
    let mut client = server.client();
    // The server has looked at its own setting by then.
    eventually("the tick runs", || {
        client.run("PING") == "PONG" && field(&mut server.client(), "door", "recovery-ms") == 0
    });
    match standstill {
        Standstill::Slow => {
            let together: Vec<&str> = ["DEBUG SLEEP 1.3"].iter().chain(lines).copied().collect();
            client.send_together(&together);
            assert_eq!(client.receive(), "OK");
        }
        Standstill::Frozen => {
            let process = Process::of(server);
            process.stop();
            client.send_together(lines);
            std::thread::sleep(Duration::from_millis(1300));
            process.resume();
        }
    }
    lines.iter().map(|_| client.receive()).collect()
}

const BOTH: [Standstill; 2] = [Standstill::Slow, Standstill::Frozen];

#[test]
fn nobody_is_granted_a_lock_and_no_lease_is_lengthened() {
    for_each(&BOTH, |standstill| {
        let server = with_a_holder(LAG);
        let lines = [
            "LOCK.ACQUIRE free bob PX 1000",
            "LOCK.SHARE yard bob PX 1000",
            "LOCK.EXTEND door alice PX 700000",
            "LOCK.EXTEND yard alice PX 700000",
            "LOCK.ACQUIRE door alice PX 700000",
            "LOCK.REENTER hall alice PX 700000",
            "LOCK.SHARE yard alice PX 700000",
        ];
        for (line, reply) in lines.iter().zip(first_after(*standstill, &server, &lines)) {
            if line.contains("bob") {
                assert_eq!(reply, Reply::Nil, "{standstill:?}: {line}");
            } else {
                assert_eq!(reply.code(), "TRYAGAIN", "{standstill:?}: {line}");
            }
        }
        let mut client = server.client();
        for key in ["door", "hall", "yard"] {
            assert!(client.pttl(key) <= 600_000, "{standstill:?}: the lease of {key} is as it was");
        }
    });
}

#[test]
fn what_lengthens_no_lease_is_done() {
    for_each(&BOTH, |standstill| {
        let server = with_a_holder(LAG);
        let lines = [
            "LOCK.ACQUIRE door alice",
            "LOCK.REENTER hall alice",
            "LOCK.RELEASE hall alice",
            "LOCK.RELEASE hall alice",
            "LOCK.RELEASE yard alice",
            "LOCK.RELEASE door alice",
        ];
        let replies = first_after(*standstill, &server, &lines);
        assert_eq!(replies, [1, 2, 1, 0, 0, 0].map(Reply::Int), "{standstill:?}");
        assert_eq!(server.client().run("EXISTS door hall yard"), 0);
    });
}

#[test]
fn grants_come_back_when_the_server_must_have_learned_of_its_replicas() {
    for_each(&BOTH, |standstill| {
        let server = with_a_holder(LAG);
        let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
        assert_eq!(first_after(*standstill, &server, &["LOCK.RELEASE door alice"]), [Reply::Int(0)]);
        let since = Instant::now();
        let mut client = server.client();
        let remaining = remaining_ms(&mut client);
        assert!((1..=4000).contains(&remaining), "{standstill:?}: {remaining} ms remain");
        assert_eq!(bob.reply(), 1);
        let lasted = since.elapsed();
        // Some of it may have passed before the answer came.
        assert!(lasted >= HELD_BACK - Duration::from_millis(1000), "{standstill:?}: granted after {lasted:?}");
        eventually("leases are lengthened", || client.run("LOCK.EXTEND door bob PX 70000") == 70_000);
    });
}

#[test]
fn a_session_whose_lease_ended_gets_the_lock_back_only_then() {
    let server = with_a_holder(LAG);
    let mut carol = server.client();
    assert_eq!(carol.run("LOCK.ACQUIRE kitchen carol PX 300 SESSION"), 1);
    let bob = Waiter::start(&server, "LOCK.ACQUIRE kitchen bob BLOCK 0");
    let replies = first_after(Standstill::Slow, &server, &["LOCK.EXTEND kitchen carol PX 300"]);
    assert_eq!(replies[0].code(), "NOTHELD");
    let mut client = server.client();
    never_within(OBSERVATION, "somebody has it", || client.run("EXISTS kitchen") == 1);
    eventually("carol has it back", || field(&mut client, "kitchen", "owner") == "carol");
    assert!(bob.is_blocked());
}

#[test]
fn a_shorter_stall_changes_nothing() {
    let server = with_a_holder(LAG);
    let mut client = server.client();
    client.send_together(&["DEBUG SLEEP 0.6", "LOCK.ACQUIRE free bob PX 1000", "LOCK.EXTEND door alice PX 700000"]);
    assert_eq!(client.receive(), "OK");
    assert_eq!([(); 2].map(|()| client.receive()), [1, 700_000].map(Reply::Int));
}

#[test]
fn without_the_setting_clients_are_served_at_once() {
    let server = with_a_holder("min-replicas-max-lag 1");
    let lines = ["LOCK.ACQUIRE free bob PX 1000", "LOCK.EXTEND door alice PX 700000"];
    assert_eq!(first_after(Standstill::Slow, &server, &lines), [1, 700_000].map(Reply::Int));
}

#[test]
fn the_lag_that_is_set_counts_and_0_ends_the_time_at_once() {
    let server = with_a_holder("lock.recovery-ms 1\nmin-replicas-max-lag 1");
    let mut client = server.client();
    client.ok("CONFIG SET min-replicas-max-lag 600");
    eventually("a standstill holds back for so long", || {
        client.ok("DEBUG SLEEP 1.3");
        info_lock(&mut client, "recovery_ms") > 300_000
    });
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE free bob PX 1000 BLOCK 0");
    end(&mut client);
    assert_eq!(bob.reply(), 1);
}
