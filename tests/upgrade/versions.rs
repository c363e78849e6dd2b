//! The two builds of the module, and the locks that are held over a change from one to the other.

use std::env;
use std::path::PathBuf;

use support::replicas::{REPLICATION, in_step};
use support::{Client, Reply, Server, Setup, module_under_test};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Old,
    New,
}

/// An upgrade, and the way back.
pub const WAYS: [(Version, Version); 2] = [(Version::Old, Version::New), (Version::New, Version::Old)];

impl Version {
    #[track_caller]
    pub fn setup(self) -> Setup {
        let module: PathBuf = match self {
            Self::New => module_under_test(),
            Self::Old => env::var_os("OLD_MODULE").expect("OLD_MODULE: run `make upgrade`").into(),
        };
        Setup::new().module(&module).config(REPLICATION)
    }

    /// Starts a replica, in step with its master.
    #[track_caller]
    pub fn replica_of(self, master: &Server) -> Server {
        let replica = self.setup().config(&format!("replicaof 127.0.0.1 {}", master.port())).start();
        in_step(&replica);
        replica
    }

    /// Returns the version of a server.
    #[track_caller]
    pub fn of(server: &Server) -> Self {
        match server.client().run("COMMAND INFO LOCK.SHARE") {
            Reply::List(commands) if matches!(commands[..], [Reply::List(_)]) => Self::New,
            Reply::List(commands) if commands == [Reply::Nil] => Self::Old,
            other => panic!("not a reply to COMMAND INFO: {other:?}"),
        }
    }
}

/// Alice takes a mutex, and a re-entrant lock twice. Returns when the lease of the first ends.
#[track_caller]
pub fn take_locks(alice: &mut Client) -> i64 {
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    assert_eq!(alice.run("LOCK.REENTER room alice PX 600000 HOLD 1"), 1);
    assert_eq!(alice.run("LOCK.REENTER room alice HOLD 2"), 2);
    alice.expires_at("door")
}

/// Alice still holds both, and can repeat and release her requests.
#[track_caller]
pub fn still_holds(alice: &mut Client, lease_end: i64) {
    assert_eq!(alice.run("LOCK.INFO door").get("owner"), "alice");
    assert_eq!(alice.expires_at("door"), lease_end);
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1, "a repeat");
    assert_eq!(alice.run("LOCK.REENTER room alice HOLD 2"), 2, "a repeat");
    assert_eq!(alice.run("LOCK.RELEASE room alice HOLD 2"), 1);
    assert!(alice.run("LOCK.FENCE door alice counter").int() > 0);
}

/// The reply to a wait at a master that becomes a replica.
#[track_caller]
pub fn is_ended_by_demotion(reply: &Reply) {
    assert!(*reply == Reply::Closed || reply.code() == "UNBLOCKED", "{reply:?}");
}
