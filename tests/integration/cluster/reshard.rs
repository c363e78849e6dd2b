//! Slots that `redis-cli --cluster reshard` moves while locks in them are held and waited for: key by key, and since Redis 8.10 as a
//! whole.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::cluster::{Cluster, Tag, id_of, moved_to};
use support::replicas::in_time;
use support::sessions::{is_connected, session_of};
use support::staggered::Staggered;
use support::{Client, LOST, Reply, Server, Waiter, Waiting, Way, eventually, info_lock, server_under_test};

use super::scene::CALM_MS;
use super::slots::MIGRATE_MS;

/// How many slots move: the first ones of the first master.
const SLOTS: i64 = 128;

/// Longer than any test.
const LEASE_MS: i64 = 600_000;

/// Each lock: its name, the command that takes it with further options, its holders, and whether it belongs to their connections.
const LOCKS: [(&str, &str, &str, &[&str], bool); 5] = [
    ("mutex", "LOCK.ACQUIRE", "", &["alice"], false),
    ("reentrant", "LOCK.REENTER", "", &["alice", "alice"], false),
    ("shared", "LOCK.SHARE", "LIMIT 2", &["alice", "zoe"], false),
    ("session", "LOCK.ACQUIRE", "", &["alice"], true),
    ("share-session", "LOCK.SHARE", "LIMIT 2", &["alice", "zoe"], true),
];

/// The command-line client that comes with the server under test, if one does.
fn cli() -> Option<PathBuf> {
    let server = server_under_test();
    let name = server.file_name()?.to_str()?.replace("-server", "-cli");
    let cli = Some(server.with_file_name(name)).filter(|path| path.is_file());
    if cli.is_none() {
        eprintln!("skipped: no client comes with this server");
    }
    cli
}

/// Whether the client moves slots as a whole unless it is told otherwise.
#[track_caller]
fn moves_slots_as_a_whole(cli: &Path) -> bool {
    let output = Command::new(cli).arg("--version").output().expect("a client that runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers = text.strip_prefix("redis-cli ").unwrap_or_default();
    let mut numbers = numbers.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (8, 10)
}

#[track_caller]
fn reshard(cli: &Path, cluster: &Cluster) {
    let [from, to] = [0, 1].map(|number| cluster.master(number));
    let output = Command::new(cli)
        .args(["--cluster", "reshard", &format!("127.0.0.1:{}", from.port()), "--cluster-yes"])
        .args(["--cluster-from", &id_of(from), "--cluster-to", &id_of(to), "--cluster-slots", &SLOTS.to_string()])
        .stdin(Stdio::null())
        .output()
        .expect("a client that runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !text.contains("[ERR]"), "{text}");
    if moves_slots_as_a_whole(cli) {
        assert!(!to.client().run("CLUSTER MIGRATION STATUS ALL").items().is_empty(), "key by key:\n{text}");
    }
}

/// A cluster, and a tag whose slot is among those that move.
#[track_caller]
fn cluster() -> (Cluster, Tag) {
    let cluster = Cluster::start(CALM_MS, "");
    let tag = cluster.tags_of(0).find(|tag| tag.slot < SLOTS).expect("a tag for every slot");
    (cluster, tag)
}

/// One lock with its holders, and the clients that wait for it.
struct Lock {
    key: String,
    take: String,
    holders: &'static [&'static str],
    /// The connections to which it belongs.
    sessions: Vec<Client>,
    /// Unix time in milliseconds.
    lease_end: i64,
    blocked: Waiter,
    notified: [Waiting; 2],
}

impl Lock {
    /// Bob waits for it blocked, carol for a message on a channel of the same slot, dave on `channel`.
    #[track_caller]
    fn start(server: &Server, key: String, channel: &str, index: usize) -> Self {
        let (_, command, options, holders, in_session) = LOCKS[index];
        let take = |token: &str| format!("{command} {key} {token} PX {LEASE_MS} {options}").trim_end().to_owned();
        let mut sessions = Vec::new();
        for (holder, count) in holders.iter().zip(1..) {
            let mut client = server.client();
            let line = take(holder) + if in_session { " SESSION" } else { "" };
            assert_eq!(client.run(&line), if command == "LOCK.REENTER" { count } else { 1 }, "{line}");
            sessions.extend(in_session.then_some(client));
        }
        let wait = |token: &str| take(token) + " BLOCK 0";
        let blocked = Waiter::start(server, &wait("bob"));
        let carol = Way::Notified.start(server, &wait("carol"));
        let mut dave = Waiting::start_on(server, channel, &wait("dave"));
        assert!(dave.waits(), "{key}");
        let lease_end = server.client().expires_at(&key);
        Self { take: take("TOKEN"), key, holders, sessions, lease_end, blocked, notified: [carol, dave] }
    }

    fn request(&self, token: &str) -> String {
        self.take.replace("TOKEN", token)
    }

    /// Each wait ends, and none with a grant.
    #[track_caller]
    fn waits_end(&mut self, to: &Server) {
        assert_eq!(moved_to(&self.blocked.reply()), to.port(), "{}", self.key);
        for waiting in &mut self.notified {
            assert_eq!(waiting.reply().code(), LOST, "{}", self.key);
        }
    }

    /// Its sessions have ended with the slot: when their connections close, the lock is held as before.
    #[track_caller]
    fn sessions_have_ended(&mut self, from: &Server, to: &Server) {
        let (mut control, mut new) = (from.client(), to.client());
        assert_eq!(session_of(&mut new, &self.key), [] as [i64; 0], "{}", self.key);
        for session in self.sessions.drain(..) {
            let id = session.id();
            drop(session);
            eventually("the connection is closed", || !is_connected(&mut control, id));
        }
    }

    /// The holders hold it at `server` and no other client does, with the lease that they had. A waiter that asks again is
    /// served when they release.
    #[track_caller]
    fn goes_on_at(&self, server: &Server) {
        let (mut client, key) = (server.client(), &self.key);
        let late = client.expires_at(key) - self.lease_end;
        assert!((0..=MIGRATE_MS).contains(&late), "{key}: the lease ends {late} ms later");
        assert_eq!(client.run(&format!("LOCK.INFO {key}")).get("holds"), i64::try_from(self.holders.len()).unwrap());
        assert_eq!(client.run(&self.request("thief")), Reply::Nil, "{key}");
        let mut bob = Waiter::start(server, &(self.request("bob") + " BLOCK 0"));
        for holder in self.holders {
            let extended = client.run(&format!("LOCK.EXTEND {key} {holder} PX {LEASE_MS}"));
            assert_eq!(extended, LEASE_MS, "{holder} of {key}");
        }
        for holder in self.holders {
            assert!(client.run(&format!("LOCK.RELEASE {key} {holder}")).int() >= 0);
        }
        assert_eq!(bob.reply(), 1, "{key}");
    }
}

#[test]
fn reshard_keeps_holders_and_ends_waits() {
    let Some(cli) = cli() else { return };
    let (cluster, tag) = cluster();
    let [from, to] = [0, 1].map(|number| cluster.master(number));
    let stays = cluster.tags_of(0).find(|tag| tag.slot >= SLOTS).expect("a tag for every slot");
    let mut locks: Vec<Lock> = (0..LOCKS.len())
        .map(|index| Lock::start(from, tag.key(LOCKS[index].0), &stays.key(&format!("news{index}")), index))
        .collect();
    let mut old = from.client();
    assert_eq!([info_lock(&mut old, "waiters"), info_lock(&mut old, "sessions")], [15, 3]);
    reshard(&cli, &cluster);
    for lock in &mut locks {
        lock.waits_end(to);
        assert_eq!(moved_to(&old.run(&lock.request("thief"))), to.port());
        lock.sessions_have_ended(from, to);
    }
    assert_eq!(info_lock(&mut old, "granted_after_waiting"), 0);
    assert_eq!([info_lock(&mut old, "waiters"), info_lock(&mut old, "sessions")], [0, 0]);
    for lock in &locks {
        lock.goes_on_at(to);
    }
}

#[test]
fn reshard_as_leases_end_leaves_one_holder() {
    let Some(cli) = cli().filter(|cli| moves_slots_as_a_whole(cli)) else { return };
    for start in [Staggered::start, Staggered::start_shared] {
        let (cluster, tag) = cluster();
        let [from, to] = [0, 1].map(|number| cluster.master(number));
        let locks = start(from, &tag.name, 40, 20);
        reshard(&cli, &cluster);
        let mut old = from.client();
        let granted = info_lock(&mut old, "granted_after_waiting");
        let outcomes = locks.outcomes();
        assert_eq!(i64::try_from(outcomes.granted.len()).unwrap(), granted, "none after the slot had moved");
        outcomes.all_told("MOVED");
        outcomes.hold_at(&mut to.client());
        in_time("no wait is left", || info_lock(&mut old, "waiters") == 0);
    }
}
