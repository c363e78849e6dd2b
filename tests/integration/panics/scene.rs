//! A server with failpoints and clients that wait in each way, and what must be true of it after any panic.

use std::time::Duration;

use support::{Client, Reply, Server, Setup, Waiting, Way, eventually, happens_within, info_lock};

/// How soon the server calls each entry by itself. Its cron runs a hundred times a second.
const SOON: Duration = Duration::from_millis(400);

const PANIC: &str = "bug in redis-lock, please report it";

/// The waiters for `door`, in their order.
const QUEUE: [(&str, Way); 3] = [("bob", Way::Blocked), ("carol", Way::Notified), ("erin", Way::Blocked)];

/// Alice holds `door`, the re-entrant lock `room` and the shared lock `hall`. Dave has a session at `yard`.
pub struct Scene {
    pub server: Server,
    pub admin: Client,
    pub alice: Client,
    pub dave: Client,
    /// Requests of a test's own, which must receive a reply, too.
    pub others: Vec<Waiting>,
    queue: Vec<Waiting>,
}

impl Scene {
    pub fn begin() -> Self {
        let server = Setup::new().with_failpoints().allow_bugs().config("hz 100").start();
        let [admin, alice, dave] = [(); 3].map(|()| server.client());
        let mut scene = Self { server, admin, alice, dave, others: Vec::new(), queue: Vec::new() };
        scene.set();
        scene
    }

    fn set(&mut self) {
        self.alice = self.server.client();
        self.dave = self.server.client();
        assert_eq!(self.alice.run("LOCK.ACQUIRE door alice PX 60000"), 1);
        assert_eq!(self.alice.run("LOCK.REENTER room alice PX 60000"), 1);
        assert_eq!(self.alice.run("LOCK.SHARE hall alice PX 60000 LIMIT 2"), 1);
        assert_eq!(self.dave.run("LOCK.ACQUIRE yard dave PX 3000 SESSION"), 1);
        let request = |name| format!("LOCK.ACQUIRE door {name} PX 60000 BLOCK 0");
        self.queue = QUEUE.map(|(name, way)| way.start(&self.server, &request(name))).into();
    }

    #[track_caller]
    pub fn arm(&mut self, entry: &str, place: usize) {
        assert_eq!(self.admin.call(&["FAILPOINT", entry, &place.to_string()]), 1);
    }

    /// Has an entry panic at a place, if `act` gets it there. Returns whether it did.
    pub fn panics(&mut self, entry: &str, place: usize, act: fn(&mut Self)) -> bool {
        self.arm(entry, place);
        act(self);
        let panics = happens_within(SOON, || self.admin.run("FAILPOINT") == 0);
        if !panics {
            self.arm("nothing", 0); // No entry has this name.
        }
        panics
    }

    /// Checks that each client receives a reply, that locks work as before, and that nothing is left. Then all clients begin
    /// again.
    pub fn goes_on(&mut self) {
        assert_eq!(self.admin.run("PING"), "PONG");
        eventually("it has begun again", || {
            self.count_in_log("restarting with an empty state after a panic") == self.count_in_log(PANIC)
        });
        assert!(!self.admin.run("DEL door").is_error());
        for (waiting, (name, _)) in self.queue.iter_mut().zip(QUEUE) {
            waiting.reply();
            assert_ne!(self.alice.run(&format!("LOCK.RELEASE door {name}")), Reply::Closed);
        }
        for other in &mut self.others {
            assert!(!self.admin.run("DEL door").is_error());
            other.reply();
        }
        ["door", "shed"].into_iter().for_each(|key| self.hands_over(key));
        self.leave();
        self.set();
    }

    /// A lock is granted to waiters of both kinds, whatever its state was before.
    fn hands_over(&mut self, key: &str) {
        assert!(!self.admin.run(&format!("DEL {key}")).is_error());
        for way in [Way::Blocked, Way::Notified] {
            assert_eq!(self.alice.run(&format!("LOCK.ACQUIRE {key} frank PX 60000")), 1);
            let mut grace = way.start(&self.server, &format!("LOCK.ACQUIRE {key} grace PX 60000 BLOCK 0"));
            assert_eq!(self.alice.run(&format!("LOCK.RELEASE {key} frank")), 0);
            assert_eq!(grace.reply(), 1, "{key}");
            assert_eq!(self.alice.run(&format!("LOCK.RELEASE {key} grace")), 0);
        }
    }

    /// Returns the id of the connection of a waiter for `door`.
    pub fn id_of(&self, name: &str) -> i64 {
        let place = QUEUE.iter().position(|(other, _)| *other == name).expect("a waiter");
        self.queue[place].id()
    }

    /// All clients leave, and nothing is left of them.
    pub fn leave(&mut self) {
        self.queue.clear();
        self.others.clear();
        (self.alice, self.dave) = (self.server.client(), self.server.client());
        let admin = &mut self.admin;
        if admin.run("MODULE LIST").items().iter().any(|module| module.get("name") == "witness") {
            eventually("the other module is unloaded", || admin.run("MODULE UNLOAD witness") == "OK");
        }
        for counter in ["waiters", "waiters_notified", "contended_locks", "sessions"] {
            eventually(counter, || info_lock(admin, counter) == 0);
        }
        admin.ok("FLUSHALL");
    }

    /// Returns how often an entry has panicked, as the log says.
    pub fn panics_in_log(&self, entry: &str) -> usize {
        self.count_in_log(&format!("{PANIC}: {entry}: failpoint "))
    }

    fn count_in_log(&self, text: &str) -> usize {
        self.server.log().matches(text).count()
    }
}
