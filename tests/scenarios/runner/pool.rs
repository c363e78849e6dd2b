//! Servers that one scenario after the other uses, one server for each configuration and thread.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use support::scenario::message_of;
use support::{Client, Reply, Server, Setup, eventually, info_lock};

/// How many servers may wait for their next scenario.
const MAX_IDLE: usize = 24;

static IDLE: Mutex<VecDeque<(Server, Place)>> = Mutex::new(VecDeque::new());

/// The place of a server, which is for one configuration.
pub struct Place {
    config: String,
    /// All settings, as the server started with them.
    settings: BTreeMap<String, Vec<u8>>,
    control: Client,
}

impl Place {
    /// Returns a server with this configuration, on which nothing is left of what it was used for before.
    #[track_caller]
    pub fn take(config: String, setup: &Setup) -> (Server, Self) {
        let mut idle = IDLE.lock().expect("the pool");
        let found = idle.iter().position(|(_, place)| place.config == config).and_then(|at| idle.remove(at));
        drop(idle);
        found.unwrap_or_else(|| {
            let server = setup.start();
            let mut control = server.client();
            let settings = settings(&mut control);
            (server, Self { config, settings, control })
        })
    }

    /// Gives the server back after a scenario, and checks that nothing is left of it. One that has stalled, say for a slow disk,
    /// is ended instead: with `lock.recovery-ms` it would refuse grants in a later scenario.
    #[track_caller]
    pub fn give_back(mut self, server: Server) {
        let reason = self.reset();
        if reason == "stall" {
            return eprintln!("a server has stalled; no other scenario uses it");
        }
        let mut idle = IDLE.lock().expect("the pool");
        idle.push_back((server, self));
        let oldest = if idle.len() > MAX_IDLE { idle.pop_front() } else { None };
        drop(idle);
        drop(oldest);
    }

    /// Returns the reason for which the server suspends grants.
    #[track_caller]
    fn reset(&mut self) -> String {
        let Self { control, settings: before, .. } = self;
        for line in
            ["CLIENT UNPAUSE", "REPLICAOF NO ONE", "FLUSHALL", "FUNCTION FLUSH", "SCRIPT FLUSH", "SLOWLOG RESET"]
        {
            control.ok(line);
        }
        control.ok("CONFIG SET min-replicas-to-write 0 lock.recovery-ms 1");
        let mut reason = String::new();
        eventually("its recovery period has ended", || {
            reason = control.info("lock", "lock_suspended_by").expect("a field");
            !["paused", "recovery", "replicas"].contains(&reason.as_str())
        });
        for kind in ["normal", "pubsub"] {
            control.run(&format!("CLIENT KILL TYPE {kind} SKIPME yes"));
        }
        let users: Vec<String> = control.run("ACL USERS").items().iter().map(Reply::string).collect();
        for user in users.iter().filter(|user| *user != "default") {
            control.run(&format!("ACL DELUSER {user}"));
        }
        for (name, value) in settings(control) {
            let earlier = &before[&name];
            if *earlier != value {
                let args = [b"CONFIG".as_slice(), b"SET", name.as_bytes(), earlier];
                assert_eq!(control.call(&args), "OK", "{name} gets its value back");
            }
        }
        eventually("all waits and sessions have ended", || {
            ["waiters", "sessions"].iter().all(|name| info_lock(control, name) == 0)
        });
        // A change of the role drops the queue entries of clients that have disconnected.
        for line in [
            "REPLICAOF 127.0.0.1 1",
            "REPLICAOF NO ONE",
            "LOCK.SLOWLOG RESET",
            "CONFIG RESETSTAT",
            "DEBUG SET-ACTIVE-EXPIRE 1",
            "FLUSHALL",
        ] {
            control.ok(line);
        }
        assert_eq!(info_lock(control, "bugs"), 0, "the module counts broken invariants");
        reason
    }
}

fn settings(control: &mut Client) -> BTreeMap<String, Vec<u8>> {
    let list = control.run("CONFIG GET *");
    list.pairs().into_iter().map(|(name, value)| (name, value.bytes().to_vec())).collect()
}

/// Ends all servers.
///
/// # Errors
/// What a server says of its end.
pub fn end() -> Result<(), String> {
    let all = std::mem::take(&mut *IDLE.lock().expect("the pool"));
    let mut result = Ok(());
    for pooled in all {
        // The hook for panics prints nothing.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(pooled))) {
            eprintln!("{}", message_of(&*payload));
            result = Err("a server that scenarios have shared did not end well; its log is above".to_owned());
        }
    }
    result
}
