//! Many locks whose leases end one after the other, each with one client that waits: whatever happens to the server
//! meanwhile happens while some lease ends.

use super::{Client, PATIENCE, Reply, Server, Waiter, bytes_of, eventually, info_lock, now_ms};

/// Longer than any test.
const LONG_MS: i64 = 600_000;

pub struct Staggered {
    locks: Vec<Lock>,
    /// Unix time in milliseconds at which the last of the leases ends.
    last_end: i64,
}

struct Lock {
    key: String,
    waiter: Waiter,
}

/// What became of those who waited.
#[derive(Default)]
pub struct Outcomes {
    /// The keys of those that were granted their lock.
    pub granted: Vec<String>,
    /// The keys of the others, with what they were told.
    pub told: Vec<(String, Reply)>,
}

impl Staggered {
    /// Locks of `alice`, for each of which `bob` waits; the leases end `step_ms` apart, the first after one such step.
    /// The hash tag goes into every key.
    #[track_caller]
    pub fn start(server: &Server, tag: &str, count: i64, step_ms: i64) -> Self {
        let mut alice = server.client();
        let before = info_lock(&mut alice, "waiters");
        let locks: Vec<Lock> = (0..count).map(|number| lock(server, &mut alice, &format!("s{number}{tag}"))).collect();
        eventually("all wait", || info_lock(&mut alice, "waiters") == before + count);
        for (lock, number) in locks.iter().zip(1..) {
            let lease = step_ms * number;
            assert_eq!(alice.run(&format!("LOCK.EXTEND {} alice PX {lease}", lock.key)), lease);
        }
        Self { locks, last_end: now_ms() + step_ms * count }
    }

    pub fn keys(&self) -> Vec<String> {
        self.locks.iter().map(|lock| lock.key.clone()).collect()
    }

    /// Waits until no lease runs any more, by the clock.
    #[track_caller]
    pub fn outlive(&self) {
        eventually("the last lease ends", || now_ms() > self.last_end + 1);
    }

    /// What every client was answered. Nobody is left hanging: each is answered, or its connection closed.
    #[track_caller]
    pub fn outcomes(self) -> Outcomes {
        let mut outcomes = Outcomes::default();
        for mut lock in self.locks {
            match lock.waiter.reply_within(PATIENCE) {
                Reply::Int(1) => outcomes.granted.push(lock.key),
                told @ (Reply::Error(_) | Reply::Closed) => outcomes.told.push((lock.key, told)),
                other => panic!("bob waits for {} and is answered {other:?}", lock.key),
            }
        }
        outcomes
    }
}

#[track_caller]
fn lock(server: &Server, alice: &mut Client, key: &str) -> Lock {
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE {key} alice PX {LONG_MS}")), 1);
    let wait = format!("LOCK.ACQUIRE {key} bob PX {LONG_MS} BLOCK 0");
    Lock { key: key.to_owned(), waiter: Waiter::send_on(server, server.client(), &bytes_of(&wait)) }
}

impl Outcomes {
    /// Every lock is where its waiter was led to believe, on the server that has the keys now: with bob, if he was
    /// granted it, and with nobody but alice if not.
    #[track_caller]
    pub fn hold_at(&self, client: &mut Client) {
        for key in &self.granted {
            assert_eq!(client.run(&format!("GET {key}")), "bob", "{key} was granted to bob");
        }
        for (key, told) in &self.told {
            let holder = client.run(&format!("GET {key}"));
            assert!(holder == Reply::Nil || holder == "alice", "{key} is {holder:?}'s, bob was told {told:?}");
        }
    }

    #[track_caller]
    pub fn all_told(&self, code: &str) {
        for (key, told) in &self.told {
            assert_eq!(told.code(), code, "{key}: {told:?}");
        }
    }
}
