//! Ten thousand clients that wait: in line for one lock or permit, and each for a lock of its own. A hand-over costs the
//! same as among a hundred, the order holds, and nothing is left behind when all are gone.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use support::process::allow_open_files;
use support::{Client, PATIENCE, Server, Setup, eventually, happens_within, info_lock};

use super::alone;

const MANY: usize = 10_000;
const FEW: usize = 100;

/// How many times as long a hand-over may take among many as among few. A cost that grows with the number of waiters
/// is a hundred times as high.
const FLAT: f64 = 3.0;

/// Hand-overs that are timed together.
const BATCH: usize = 100;
const BATCHES: usize = 10;

/// Attempts at a fair measurement on a busy machine.
const ATTEMPTS: usize = 4;

/// How many bytes two equal rounds may differ by: less than one small allocation for each waiter.
const MARGIN: i64 = 96 * 1024;

fn server() -> Server {
    allow_open_files(MANY + 500);
    let limits = format!("maxclients {}\nlock.max-waiters {MANY}\nlock.rejoin-grace-ms 0", MANY + 100);
    Setup::new().config(&limits).start()
}

/// One of many clients: a bare connection.
struct Member(TcpStream);

impl Member {
    fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a server that takes connections");
        stream.set_read_timeout(Some(PATIENCE)).expect("a connection with a time-out");
        stream.set_nodelay(true).expect("a connection without delay");
        Self(stream)
    }

    fn send(&mut self, line: &str) {
        self.0.write_all(format!("{line}\r\n").as_bytes()).expect("a connection that takes a command");
    }

    /// Reads exactly what must come next.
    #[track_caller]
    fn expect(&mut self, reply: &str) {
        let mut bytes = vec![0; reply.len()];
        let read = self.0.read_exact(&mut bytes);
        assert!(read.is_ok(), "{reply:?} never came: {read:?}");
        assert_eq!(String::from_utf8_lossy(&bytes), reply);
    }

    #[track_caller]
    fn ask(&mut self, line: &str, reply: &str) {
        self.send(line);
        self.expect(reply);
    }
}

/// Clients that wait, and one more that holds and releases.
struct Crowd {
    members: Vec<Member>,
    holder: Member,
}

/// Whether all stand in line for one lock or each waits for a lock of its own.
#[derive(Clone, Copy)]
enum Scene {
    OneLock,
    OneLockEach,
    /// A lock with one permit.
    Permit,
}

impl Scene {
    fn key(self, number: usize) -> String {
        match self {
            Self::OneLock | Self::Permit => "door".to_owned(),
            Self::OneLockEach => format!("door{number}"),
        }
    }

    /// Who holds the lock for which this member is the next.
    fn holder(self, number: usize) -> String {
        match (self, number.checked_sub(1)) {
            (Self::OneLock | Self::Permit, Some(before)) => format!("t{before}"),
            _ => "holder".to_owned(),
        }
    }

    fn take(self, key: &str, token: &str, options: &str) -> String {
        match self {
            Self::OneLock | Self::OneLockEach => format!("LOCK.ACQUIRE {key} {token} {options}"),
            Self::Permit => format!("LOCK.SHARE {key} {token} LIMIT 1 {options}"),
        }
    }
}

impl Crowd {
    fn connect(server: &Server, count: usize) -> Self {
        Self { members: (0..count).map(|_| Member::connect(server)).collect(), holder: Member::connect(server) }
    }

    /// The first `count` begin to wait, one after the other.
    #[track_caller]
    fn line_up(&mut self, scene: Scene, count: usize, lease: &str) {
        for (number, member) in self.members.iter_mut().take(count).enumerate() {
            let key = scene.key(number);
            if number == 0 || matches!(scene, Scene::OneLockEach) {
                self.holder.ask(&scene.take(&key, "holder", lease), ":1\r\n");
            }
            member.send(&scene.take(&key, &format!("t{number}"), "BLOCK 0"));
            // When this is answered the server has read what was sent before.
            self.holder.ask("PING", "+PONG\r\n");
        }
    }

    /// Hands the lock on to one member, who must be the next.
    #[track_caller]
    fn serve(&mut self, scene: Scene, number: usize) {
        let line = format!("LOCK.RELEASE {} {}", scene.key(number), scene.holder(number));
        self.holder.ask(&line, ":0\r\n");
        self.members.get_mut(number).expect("a member").expect(":1\r\n");
    }

    /// The time of a hand-over, in each of several batches.
    #[track_caller]
    fn serve_batch(&mut self, scene: Scene, first: usize) -> Duration {
        let started = Instant::now();
        (first..first + BATCH).for_each(|number| self.serve(scene, number));
        started.elapsed() / u32::try_from(BATCH).expect("a small number")
    }

    /// Frees what the last of `count` holds.
    #[track_caller]
    fn clear(&mut self, scene: Scene, count: usize) {
        let owned = match scene {
            Scene::OneLock | Scene::Permit => count - 1..count,
            Scene::OneLockEach => 0..count,
        };
        for number in owned {
            self.holder.ask(&format!("LOCK.RELEASE {} t{number}", scene.key(number)), ":0\r\n");
        }
    }
}

fn waiters(client: &mut Client) -> usize {
    usize::try_from(info_lock(client, "waiters")).expect("a number of waiters")
}

/// The best times of a hand-over among many and among few.
#[track_caller]
fn times(server: &Server, crowd: &mut Crowd, scene: Scene) -> (Duration, Duration) {
    let mut client = server.client();
    crowd.line_up(scene, MANY, "");
    assert_eq!(waiters(&mut client), MANY);
    refuses_one_more(&mut client);
    let among_many = (0..BATCHES).map(|batch| crowd.serve_batch(scene, batch * BATCH)).min().expect("a batch");
    (BATCHES * BATCH..MANY).for_each(|number| crowd.serve(scene, number));
    crowd.clear(scene, MANY);

    let among_few = (0..BATCHES).map(|_| {
        crowd.line_up(scene, FEW, "");
        let time = crowd.serve_batch(scene, 0);
        crowd.clear(scene, FEW);
        time
    });
    let among_few = among_few.min().expect("a batch");
    assert_eq!(waiters(&mut client), 0);
    assert_eq!(client.run("DBSIZE"), 0);
    (among_many, among_few)
}

#[track_caller]
fn refuses_one_more(client: &mut Client) {
    assert_eq!(client.run("LOCK.ACQUIRE another holder"), 1, "who need not wait is welcome");
    for key in ["another", &Scene::OneLockEach.key(0), &Scene::OneLock.key(0)] {
        if client.run(&format!("EXISTS {key}")) == 1 {
            assert_eq!(client.run(&format!("LOCK.ACQUIRE {key} late BLOCK 0")).code(), "QUEUEFULL", "{key}");
        }
    }
    assert_eq!(client.run("LOCK.RELEASE another holder"), 0);
}

/// Also shows that they are served in the order in which they came: whoever is next must have the answer.
#[track_caller]
fn is_flat(scene: Scene) {
    let _alone = alone();
    let server = server();
    let mut crowd = Crowd::connect(&server, MANY);
    let mut measured = Vec::new();
    for _ in 0..ATTEMPTS {
        let (among_many, among_few) = times(&server, &mut crowd, scene);
        measured.push((among_many, among_few));
        if among_many.as_secs_f64() <= FLAT * among_few.as_secs_f64() {
            return;
        }
    }
    panic!("a hand-over among {MANY} and among {FEW}: {measured:?}");
}

#[test]
fn ten_thousand_in_line_for_one_lock_are_served_in_order_and_as_fast_as_a_hundred() {
    is_flat(Scene::OneLock);
}

#[test]
fn ten_thousand_in_line_for_one_permit_are_served_in_order_and_as_fast_as_a_hundred() {
    is_flat(Scene::Permit);
}

#[test]
fn ten_thousand_locks_with_one_waiter_each_are_handed_over_as_fast_as_a_hundred() {
    is_flat(Scene::OneLockEach);
}

#[test]
fn ten_thousand_leases_that_end_together_are_all_handed_over() {
    let _alone = alone();
    let server = server();
    let mut crowd = Crowd::connect(&server, MANY);
    let mut client = server.client();
    crowd.line_up(Scene::OneLockEach, MANY, "PX 600000");
    let end = support::now_ms() + 1500;
    for number in 0..MANY {
        crowd.holder.send(&format!("PEXPIREAT {} {end}", Scene::OneLockEach.key(number)));
    }
    crowd.holder.expect(&":1\r\n".repeat(MANY));
    assert!(support::now_ms() < end, "all have the same end before it comes");
    crowd.members.iter_mut().for_each(|member| member.expect(":1\r\n"));
    let late = support::now_ms() - end;
    assert!((0..2000).contains(&late), "the last was served {late} ms late");
    assert_eq!(waiters(&mut client), 0);
    assert_eq!(info_lock(&mut client, "handovers_expiry"), i64::try_from(MANY).unwrap());
}

fn used_memory(client: &mut Client) -> i64 {
    client.info("memory", "used_memory").expect("used_memory").parse().expect("a number")
}

/// Many come, some are served, and all hang up; not all at once, because the server keeps what it made for each blocked
/// client, and frees only some five hundred of those in a second.
#[track_caller]
fn come_and_go(server: &Server, client: &mut Client) {
    const AT_ONCE: usize = 250;
    for scene in [Scene::OneLock, Scene::OneLockEach].into_iter().cycle().take(MANY / AT_ONCE) {
        let mut crowd = Crowd::connect(server, AT_ONCE);
        crowd.line_up(scene, AT_ONCE, "");
        (0..BATCH).for_each(|number| crowd.serve(scene, number));
        assert_eq!(waiters(client), AT_ONCE - BATCH);
        drop(crowd);
        eventually("all are gone", || client.info("clients", "connected_clients").as_deref() == Some("1"));
        assert_eq!(waiters(client), 0);
        client.ok("FLUSHALL");
    }
}

#[test]
fn the_memory_of_ten_thousand_waiters_is_given_back() {
    let _alone = alone();
    let server = server();
    let mut client = server.client();
    let before = used_memory(&mut client);
    // The first round also makes what stays: tables that grew, buffers that are kept.
    let mut limit = before + 8 * MARGIN;
    for round in ["the first", "the second"] {
        come_and_go(&server, &mut client);
        let mut used = i64::MAX;
        let given_back = happens_within(PATIENCE, || {
            client.run("MEMORY PURGE");
            used = used.min(used_memory(&mut client));
            used <= limit
        });
        assert!(given_back, "{before} bytes before, {used} after {round} round, allowed are {limit}");
        limit = used + MARGIN;
    }
}
