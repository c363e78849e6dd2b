//! Many leases that end together while clients wait: while the server expires keys itself, after a stall, in several databases,
//! and among evictions and flushes. Each waiter receives a reply, each lock has one holder at a time, and the server lives.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::listener::Listener;
use support::parallel::for_each;
use support::process::{Process, allow_open_files};
use support::raw::RawConnection;
use support::{Aof, Client, PATIENCE, Reply, Server, Setup, Waiting, Way, eventually, info_lock};

/// Written as it comes, so that many hand-overs need not wait for the disk.
const AOF: &str = "appendonly yes\nappendfsync no\naof-use-rdb-preamble no";

/// Shorter than what the module takes for a standstill of the world.
const STALL: Duration = Duration::from_millis(600);

const LONG_MS: i64 = 600_000;

/// The server checks for keys that expire this often a second, as seldom and as often as is common.
const RATES: [u32; 2] = [10, 100];

/// Clients that ask for the same lock again and again, each time by another name.
struct Contenders {
    connections: Vec<RawConnection>,
    rounds: usize,
}

impl Contenders {
    /// `each` clients for each of `locks` locks send all their requests in one write. The server reads the next request of a
    /// client after it has granted the earlier one. The leases last 5 to 25 ms, and no client releases a lock.
    fn start(server: &Server, locks: usize, each: usize, rounds: usize) -> Self {
        allow_open_files(locks * each + 500);
        let mut connections: Vec<_> = (0..locks * each).map(|_| RawConnection::open(server.port())).collect();
        for (number, connection) in connections.iter_mut().enumerate() {
            let lock = number % locks;
            let lines = (0..rounds).map(|round| {
                let lease = 5 + (number * 7 + round * 3) % 21;
                support::raw::encode(&format!("LOCK.ACQUIRE lock{lock} {number}-{round} PX {lease} BLOCK 0"))
            });
            connection.send_bytes(&lines.flatten().collect::<Vec<u8>>());
        }
        Self { connections, rounds }
    }

    /// All of them are granted every lock that they ask for. Returns how many grants that was.
    #[track_caller]
    fn are_all_served(mut self) -> i64 {
        for (number, connection) in self.connections.iter_mut().enumerate() {
            for round in 0..self.rounds {
                assert_eq!(connection.line().as_deref(), Some(":1"), "client {number}, request {round}");
            }
        }
        i64::try_from(self.connections.len() * self.rounds).expect("a small number")
    }
}

/// Does something when it goes, also in a panic.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0();
    }
}

/// Checks in the append-only file that each lock was deleted between two grants. Returns the number of grants.
#[track_caller]
fn one_holder_after_the_other(aof: &Aof) -> i64 {
    let mut holders: HashMap<String, String> = HashMap::new();
    let mut grants = 0;
    for line in aof.commands() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["SET", key, holder, ..] => {
                let before = holders.insert(key.to_owned(), holder.to_owned());
                assert_eq!(before, None, "{line}, while somebody held it");
                grants += 1;
            }
            ["DEL" | "UNLINK", ref keys @ ..] => keys.iter().for_each(|&key| _ = holders.remove(key)),
            _ => {}
        }
    }
    grants
}

#[test]
fn thousands_of_short_leases_end_on_busy_server() {
    let server = Setup::new().config(AOF).config("hz 100").start();
    let mut control = server.client();
    let contenders = Contenders::start(&server, 300, 3, 24);
    let over = AtomicBool::new(false);
    let granted = thread::scope(|scope| {
        // While a slow command runs many leases end, and the server's own expiry comes to them first.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                control.ok("DEBUG SLEEP 0.012");
            }
        });
        let _over = OnDrop(|| over.store(true, Ordering::Relaxed));
        contenders.are_all_served()
    });
    assert_eq!(info_lock(&mut control, "waiters"), 0);
    assert_eq!(one_holder_after_the_other(&server.aof()), granted);
}

/// What causes a stall.
#[derive(Clone, Copy, Debug)]
enum Stall {
    Process,
    Command,
    Script,
}

impl Stall {
    #[track_caller]
    fn happens_to(self, server: &Server) {
        let mut client = server.client();
        let seconds = STALL.as_secs_f64();
        match self {
            Self::Process => {
                let process = Process::of(server);
                process.stop();
                thread::sleep(STALL);
                process.resume();
            }
            Self::Command => client.ok(&format!("DEBUG SLEEP {seconds}")),
            Self::Script => {
                // Redis 7.0 has no clock for scripts but TIME, which does not advance in scripts on later servers.
                let script = format!(
                    "local function time() local now = redis.call('TIME') return now[1] + now[2] / 1000000 end
                    local exists, clock = pcall(function() return os.clock end)
                    if not exists then clock = time end
                    local from = clock() while clock() - from < {seconds} do end return 1"
                );
                client.send(&["EVAL", &script, "0"]);
                // That clock counts the processor's time, of which a busy machine gives little.
                assert_eq!(client.receive_within(6 * PATIENCE), 1);
            }
        }
    }
}

/// Locks of alice's in one database, `lock0` and on, each with one waiter for a lease of its own: a blocked client, or a
/// request for a message, by turns.
struct Doors {
    /// The clients that are blocked, with the numbers of their locks.
    blocked: Vec<(usize, RawConnection)>,
    /// The numbers of the locks that are waited for by message.
    told: BTreeSet<usize>,
    /// The client that asked for all those, and one that listens.
    _asker: Client,
    listener: Listener,
    count: usize,
}

impl Doors {
    #[track_caller]
    fn start(server: &Server, database: u32, count: usize, lease_ms: i64) -> Self {
        let mut alice = server.client_in(database);
        let before = info_lock(&mut alice, "waiters");
        let (channel, mut asker) = (format!("news{database}"), server.client_in(database));
        let listener = Listener::start(server, &channel);
        let (mut blocked, mut told) = (Vec::new(), BTreeSet::new());
        for number in 0..count {
            assert_eq!(alice.run(&format!("LOCK.ACQUIRE lock{number} alice PX {LONG_MS}")), 1);
            let ask = format!("LOCK.ACQUIRE lock{number} bob{database} PX {lease_ms} BLOCK 0");
            if number % 2 == 1 {
                asker.run(&format!("{ask} NOTIFY {channel}"));
                told.insert(number);
                continue;
            }
            let mut waiter = RawConnection::open(server.port());
            assert_eq!(waiter.run(&format!("SELECT {database}")), "+OK");
            waiter.send(&ask);
            blocked.push((number, waiter));
        }
        let all = before + i64::try_from(count).expect("a small number");
        eventually("all wait", || info_lock(&mut alice, "waiters") == all);
        Self { blocked, told, _asker: asker, listener, count }
    }

    /// All leases end after `in_ms` milliseconds, within `within_ms` more.
    #[track_caller]
    fn end_soon(&self, client: &mut Client, in_ms: i64, within_ms: i64) {
        let lines: Vec<String> = (0..self.count)
            .map(|number| {
                let lease = in_ms + i64::try_from(number).expect("a small number") % within_ms;
                format!("PEXPIRE lock{number} {lease}")
            })
            .collect();
        client.send_together(&lines);
        assert!(lines.iter().all(|_| client.receive() == 1));
    }

    #[track_caller]
    fn are_all_served(mut self, what: &str) {
        for (number, waiter) in &mut self.blocked {
            assert_eq!(waiter.line().as_deref(), Some(":1"), "{what}: lock{number}");
        }
        while !self.told.is_empty() {
            let message = self.listener.message();
            assert_eq!(message.event, "granted", "{what}: {message:?}");
            let number = message.key.strip_prefix("lock").and_then(|number| number.parse().ok());
            assert!(number.is_some_and(|number| self.told.remove(&number)), "{what}: {message:?}");
        }
        self.listener.has_heard_nothing_else();
    }
}

#[test]
fn leases_end_during_stall() {
    let stalls = [Stall::Process, Stall::Command, Stall::Script];
    let cases: Vec<_> = stalls.iter().flat_map(|stall| RATES.map(|rate| (stall, rate))).collect();
    for_each(&cases, |(stall, rate)| {
        let server = Setup::new().config(AOF).config(&format!("hz {rate}")).start();
        let doors = Doors::start(&server, 0, 40, LONG_MS);
        let mut control = server.client();
        doors.end_soon(&mut control, 100, 20);
        stall.happens_to(&server);
        doors.are_all_served(&format!("{stall:?} at {rate}"));
        assert_eq!(one_holder_after_the_other(&server.aof()), 80);
        assert!((0..40).all(|number| control.run(&format!("GET lock{number}")) == "bob0"));
    });
}

/// What a connection to database 0 sends during the stall, before it begins to wait.
const BEFORE_A_WAIT: [&[&str]; 4] = [&[], &["DEL lock0"], &["SELECT 1", "DEL lock0", "SELECT 0"], &["EXISTS lock3"]];

#[test]
fn leases_end_in_two_databases_during_stall() {
    let cases: Vec<_> = BEFORE_A_WAIT.iter().flat_map(|lines| RATES.map(|rate| (lines, rate))).collect();
    for_each(&cases, |(lines, rate)| {
        let server = Setup::new().config(&format!("hz {rate}")).start();
        let doors = [0, 1].map(|database| Doors::start(&server, database, 20, LONG_MS));
        let (mut zero, mut one) = (server.client(), server.client_in(1));
        let (mut carol, mut dave) = (server.client(), server.client_in(1));
        doors[0].end_soon(&mut zero, 100, 20);
        doors[1].end_soon(&mut one, 100, 20);
        let process = Process::of(&server);
        process.stop();
        let wait = |name: &str| format!("LOCK.ACQUIRE lock4 {name} PX {LONG_MS} BLOCK 0");
        let lines_of_carol: Vec<&str> = lines.iter().copied().chain(["LOCK.ACQUIRE lock4 carol BLOCK 0"]).collect();
        carol.send_together(&lines_of_carol);
        dave.send_together(&["DEL lock5", &wait("dave")]);
        thread::sleep(STALL);
        process.resume();
        for doors in doors {
            doors.are_all_served(&format!("{lines:?} at {rate}"));
        }
        assert!(lines.iter().all(|_| !carol.receive().is_error()));
        assert!(!dave.receive().is_error());
        assert_eq!([zero.run("GET lock4"), one.run("GET lock4")], ["bob0", "bob1"].map(Reply::text));
        assert_eq!(zero.run("LOCK.RELEASE lock4 bob0"), 0);
        assert_eq!(carol.receive(), 1, "it waited in database 0");
        assert_eq!(one.run("LOCK.RELEASE lock4 bob1"), 0);
        assert_eq!(dave.receive(), 1, "it waited in database 1");
        assert_eq!([zero.run("GET lock4"), one.run("GET lock4")], ["carol", "dave"].map(Reply::text));
    });
}

/// What else may happen to the keys while leases end, again and again until they have.
const MEANWHILE: [&[&str]; 4] = [
    &["FLUSHDB"],
    &["SWAPDB 0 1", "SWAPDB 1 2"],
    &["CONFIG SET maxmemory-policy allkeys-random", "CONFIG SET maxmemory 1", "SET fill x", "CONFIG SET maxmemory 0"],
    &["CONFIG SET maxmemory-policy volatile-ttl", "CONFIG SET maxmemory 1", "SET fill x", "CONFIG SET maxmemory 0"],
];

#[test]
fn leases_end_among_flushes_swaps_and_evictions() {
    let cases: Vec<_> = MEANWHILE.iter().flat_map(|lines| RATES.map(|rate| (lines, rate))).collect();
    for_each(&cases, |(lines, rate)| {
        let server = Setup::new().config(&format!("hz {rate}")).start();
        // A lock that was granted may come to another database, where another client then waits for it.
        let doors = [0, 1].map(|database| Doors::start(&server, database, 40, 100));
        let (mut zero, mut one, mut control) = (server.client(), server.client_in(1), server.client());
        doors[0].end_soon(&mut zero, 20, 120);
        doors[1].end_soon(&mut one, 20, 120);
        let over = Instant::now() + Duration::from_millis(160);
        while Instant::now() < over {
            control.send_together(lines);
            // Redis refuses SET while there is no memory.
            lines.iter().for_each(|_| _ = control.receive());
        }
        for doors in doors {
            doors.are_all_served(&format!("{lines:?} at {rate}"));
        }
        eventually("nobody waits", || info_lock(&mut control, "waiters") == 0);
    });
}

/// How many threads read and write for the server's clients.
fn io_threads(client: &mut Client) -> i64 {
    let pair = client.run("CONFIG GET io-threads");
    pair.items().get(1).expect("a value").string().parse().expect("a number")
}

/// How many replies they have sent.
fn sent_by_threads(client: &mut Client) -> i64 {
    let count = client.info("stats", "io_threaded_writes_processed").expect("the counter");
    count.parse().expect("a number")
}

/// `SERVER_CONFIG="io-threads 2"` runs this and any other test with I/O threads.
#[test]
fn many_waiters_receive_replies_by_io_threads() {
    const LOCKS: i64 = 64;
    let server = Server::start();
    let mut alice = server.client();
    let mut waiters: Vec<Waiting> = (0..LOCKS)
        .zip(Way::ALL.iter().cycle())
        .map(|(number, way)| {
            assert_eq!(alice.run(&format!("LOCK.ACQUIRE lock{number} alice")), 1);
            way.send(&server, &format!("LOCK.ACQUIRE lock{number} bob BLOCK 0"))
        })
        .collect();
    eventually("all wait", || info_lock(&mut alice, "waiters") == LOCKS);
    let before = sent_by_threads(&mut alice);
    let lines: Vec<String> = (0..LOCKS).map(|number| format!("LOCK.RELEASE lock{number} alice")).collect();
    alice.send_together(&lines);
    assert!(lines.iter().all(|_| alice.receive() == 0));
    waiters.iter_mut().for_each(|waiter| assert_eq!(waiter.reply(), 1));
    let used = sent_by_threads(&mut alice) > before;
    assert_eq!(used, io_threads(&mut alice) > 1, "the threads are used, if there are any");
}
