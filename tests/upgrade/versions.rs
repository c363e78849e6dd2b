//! The two builds of the module, and servers with each.

use std::env;
use std::path::PathBuf;

use support::replicas::{REPLICATION, in_step, in_time, is_master};
use support::{Client, Reply, Server, Setup, eventually, module_under_test};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Old,
    New,
}

/// An upgrade, and the way back.
pub const WAYS: [(Version, Version); 2] = [(Version::Old, Version::New), (Version::New, Version::Old)];

impl Version {
    #[track_caller]
    pub fn module(self) -> PathBuf {
        match self {
            Self::New => module_under_test(),
            Self::Old => env::var_os("OLD_MODULE").expect("OLD_MODULE: run `make upgrade`").into(),
        }
    }

    #[track_caller]
    pub fn setup(self) -> Setup {
        Setup::new().module(&self.module()).config(REPLICATION)
    }

    /// One more replica, in step with its master.
    #[track_caller]
    pub fn replica_of(self, master: &Server) -> Server {
        let replica = self.setup().config(&format!("replicaof 127.0.0.1 {}", master.port())).start();
        in_step(&replica);
        replica
    }

    /// Which of the two a server has.
    #[track_caller]
    pub fn of(server: &Server) -> Self {
        match server.client().run("COMMAND INFO LOCK.SHARE") {
            Reply::List(commands) if matches!(commands[..], [Reply::List(_)]) => Self::New,
            Reply::List(commands) if commands == [Reply::Nil] => Self::Old,
            other => panic!("not what COMMAND INFO answers: {other:?}"),
        }
    }
}

/// A planned failover by the servers' own command, without Sentinel. The old master follows the new one then.
#[track_caller]
pub fn change_places(master: &Server, replica: &Server) {
    let failover = format!("FAILOVER TO 127.0.0.1 {}", replica.port());
    let mut client = master.client();
    // A replica that has only just come is not online for its master at once.
    eventually("the failover begins", || client.run(&failover) == "OK");
    in_time("the replica is promoted", || is_master(replica));
    in_step(master);
}

/// What a client sees that waits at a server which stops being the master.
#[track_caller]
pub fn is_told_off(answer: &Reply) {
    assert!(*answer == Reply::Closed || answer.code() == "UNBLOCKED", "{answer:?}");
}

/// Alice holds a mutex, and a re-entrant lock twice; returns when the lease of the first ends.
#[track_caller]
pub fn take_locks(alice: &mut Client) -> i64 {
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    assert_eq!(alice.run("LOCK.REENTER room alice PX 600000 HOLD 1"), 1);
    assert_eq!(alice.run("LOCK.REENTER room alice HOLD 2"), 2);
    alice.expires_at("door")
}

/// Alice still holds what she held, and can go on with it.
#[track_caller]
pub fn still_holds(alice: &mut Client, lease_end: i64) {
    assert_eq!(alice.run("LOCK.INFO door").get("owner"), "alice");
    assert_eq!(alice.expires_at("door"), lease_end, "the lease is what it was");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1, "a repeat");
    assert_eq!(alice.run("LOCK.REENTER room alice HOLD 2"), 2, "a repeat");
    assert_eq!(alice.run("LOCK.RELEASE room alice HOLD 2"), 1);
    assert!(alice.run("LOCK.FENCE door alice counter").int() > 0);
}
