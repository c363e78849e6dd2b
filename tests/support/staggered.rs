//! Many locks whose leases end one after the other, each with one client that waits, blocked or for a message: whatever
//! happens to the server meanwhile happens while some lease ends.

use super::{Client, LOST, PATIENCE, Reply, Server, Waiting, Way, eventually, info_lock, now_ms};

/// Longer than any test.
const LONG_MS: i64 = 600_000;

pub struct Staggered {
    form: Form,
    locks: Vec<Lock>,
    /// Unix time in milliseconds at which the last of the leases ends.
    last_end: i64,
}

/// How alice holds the locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Alone,
    /// With one of two permits. Zoe has the other, longer than any test.
    Shared,
}

struct Lock {
    key: String,
    waiter: Waiting,
}

/// What became of those who waited.
#[derive(Default)]
pub struct Outcomes {
    form: Form,
    /// The keys of those that were granted their lock.
    pub granted: Vec<String>,
    /// The keys of the others, with what they were told.
    pub told: Vec<(String, Reply)>,
}

type Begin = fn(&Server, &str, i64, i64) -> Staggered;

impl Staggered {
    /// How the leases that end are held: by mutexes, or by shares.
    pub const FORMS: [Begin; 2] = [Self::start, Self::start_shared];

    /// Locks of `alice`, for each of which `bob` waits; the leases end `step_ms` apart, the first after one such step.
    /// The hash tag goes into every key.
    #[track_caller]
    pub fn start(server: &Server, tag: &str, count: i64, step_ms: i64) -> Self {
        Self::start_as(Form::Alone, server, tag, count, step_ms)
    }

    /// The same with shared locks: Alice has one of two permits, for which bob waits, and zoe the other.
    #[track_caller]
    pub fn start_shared(server: &Server, tag: &str, count: i64, step_ms: i64) -> Self {
        Self::start_as(Form::Shared, server, tag, count, step_ms)
    }

    #[track_caller]
    fn start_as(form: Form, server: &Server, tag: &str, count: i64, step_ms: i64) -> Self {
        let mut alice = server.client();
        let before = info_lock(&mut alice, "waiters");
        let locks: Vec<Lock> = (0..count)
            .zip(Way::ALL.iter().cycle())
            .map(|(number, way)| lock(form, *way, server, &mut alice, &format!("s{number}{tag}")))
            .collect();
        eventually("all wait", || info_lock(&mut alice, "waiters") == before + count);
        for (lock, number) in locks.iter().zip(1..) {
            let lease = step_ms * number;
            assert_eq!(alice.run(&format!("LOCK.EXTEND {} alice PX {lease}", lock.key)), lease);
        }
        Self { form, locks, last_end: now_ms() + step_ms * count }
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
        let mut outcomes = Outcomes { form: self.form, ..Outcomes::default() };
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
fn lock(form: Form, way: Way, server: &Server, alice: &mut Client, key: &str) -> Lock {
    let (take, holders, limit): (_, &[_], _) = match form {
        Form::Alone => ("LOCK.ACQUIRE", &["alice"], ""),
        Form::Shared => ("LOCK.SHARE", &["zoe", "alice"], " LIMIT 2"),
    };
    for holder in holders {
        assert_eq!(alice.run(&format!("{take} {key} {holder} PX {LONG_MS}{limit}")), 1);
    }
    let wait = format!("{take} {key} bob PX {LONG_MS}{limit} BLOCK 0");
    Lock { key: key.to_owned(), waiter: way.send(server, &wait) }
}

impl Outcomes {
    /// Every lock is where its waiter was led to believe, on the server that has the keys now: with bob, if he was
    /// granted it, and with nobody but alice if not.
    #[track_caller]
    pub fn hold_at(&self, client: &mut Client) {
        match self.form {
            Form::Alone => self.hold_alone_at(client),
            Form::Shared => self.share_at(client),
        }
    }

    #[track_caller]
    fn hold_alone_at(&self, client: &mut Client) {
        for key in &self.granted {
            assert_eq!(client.run(&format!("GET {key}")), "bob", "{key} was granted to bob");
        }
        for (key, told) in &self.told {
            let holder = client.run(&format!("GET {key}"));
            assert!(holder == Reply::Nil || holder == "alice", "{key} is {holder:?}'s, bob was told {told:?}");
        }
    }

    #[track_caller]
    fn share_at(&self, client: &mut Client) {
        let mut has = |key: &str, holder: &str| client.run(&format!("ZSCORE {key} {holder}")) != Reply::Nil;
        for key in &self.granted {
            assert!(has(key, "bob") && has(key, "zoe"), "{key}: a permit was granted to bob");
            assert!(!has(key, "alice"), "{key}: the permit of alice was passed on");
        }
        for (key, told) in &self.told {
            assert!(has(key, "zoe"), "{key}: zoe holds for long");
            assert!(!has(key, "bob"), "{key}: bob was told {told:?}");
        }
    }

    /// Those who were blocked were told this, and those who waited for a message that it is lost.
    #[track_caller]
    pub fn all_told(&self, code: &str) {
        for (key, told) in &self.told {
            assert!([code, LOST].contains(&told.code()), "{key}: {told:?}");
        }
    }
}
