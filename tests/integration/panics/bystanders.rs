//! A server with failpoints, where somebody waits in every way, and what must be true of it whatever has panicked.

use std::time::Duration;

use support::{Client, Reply, Server, Setup, Waiting, Way, eventually, happens_within, info_lock};

/// How long an entry may take to run that the server calls in its own time. Its cron runs ten times a second.
const SOON: Duration = Duration::from_millis(400);

/// Alice holds `door`, for which bob, carol and erin wait in line. Dave has a session at `yard`. `room` is a re-entrant lock,
/// `hall` a shared one.
pub struct Scene {
    pub server: Server,
    pub admin: Client,
    pub alice: Client,
    pub dave: Client,
    /// Requests of a test's own, which are to be answered, too.
    pub others: Vec<Waiting>,
    line: Vec<Waiting>,
}

const PANIC: &str = "bug in redis-lock, please report it";

const IN_LINE: [(&str, Way); 3] = [("bob", Way::Blocked), ("carol", Way::Notified), ("erin", Way::Blocked)];

impl Scene {
    pub fn begin(config: &str) -> Self {
        let server = Setup::new().with_failpoints().allow_bugs().config("hz 100").config(config).start();
        let [admin, alice, dave] = [(); 3].map(|()| server.client());
        let mut scene = Self { server, admin, alice, dave, others: Vec::new(), line: Vec::new() };
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
        self.line = IN_LINE.map(|(name, way)| way.start(&self.server, &request(name))).into();
    }

    /// Has an entry panic at a place, if `act` gets it there. Returns whether it did.
    pub fn panics(&mut self, entry: &str, place: usize, act: fn(&mut Self)) -> bool {
        let armed = self.admin.call(&["FAILPOINT", entry, &place.to_string()]);
        assert_eq!(armed, 1);
        act(self);
        let panics = happens_within(SOON, || self.admin.run("FAILPOINT") == 0);
        if !panics {
            // No entry has this name.
            assert_eq!(self.admin.run("FAILPOINT nothing 0"), 1);
        }
        panics
    }

    /// Checks that everybody is answered, that locks work as ever, and that nothing is left behind; and sets the scene anew.
    pub fn goes_on(&mut self) {
        assert_eq!(self.admin.run("PING"), "PONG");
        eventually("it has begun anew", || self.log_has("begins anew after a panic") == self.log_has(PANIC));
        assert!(!self.admin.run("DEL door").is_error());
        for (waiting, (name, _)) in self.line.iter_mut().zip(IN_LINE) {
            waiting.reply();
            assert_ne!(self.alice.run(&format!("LOCK.RELEASE door {name}")), Reply::Closed);
        }
        for other in &mut self.others {
            assert!(!self.admin.run("DEL door").is_error());
            other.reply();
        }
        self.hands_over("door");
        self.hands_over("shed");
        self.is_left_empty();
        self.set();
    }

    /// A lock works, whatever became of it before.
    fn hands_over(&mut self, key: &str) {
        assert!(!self.admin.run(&format!("DEL {key}")).is_error());
        assert_eq!(self.alice.run(&format!("LOCK.ACQUIRE {key} frank PX 60000")), 1);
        let request = format!("LOCK.ACQUIRE {key} grace PX 60000 BLOCK 0");
        for way in [Way::Blocked, Way::Notified] {
            let mut grace = way.start(&self.server, &request);
            assert_eq!(self.alice.run(&format!("LOCK.RELEASE {key} frank")), 0);
            assert_eq!(grace.reply(), 1, "{key}");
            assert_eq!(self.alice.run(&format!("LOCK.RELEASE {key} grace")), 0);
            assert_eq!(self.alice.run(&format!("LOCK.ACQUIRE {key} frank PX 60000")), 1);
        }
    }

    /// The connection of one who waits for `door`.
    pub fn id_in_line(&self, name: &str) -> i64 {
        let place = IN_LINE.iter().position(|(other, _)| *other == name).expect("one who waits");
        self.line[place].id()
    }

    fn is_left_empty(&mut self) {
        self.line.clear();
        self.others.clear();
        (self.alice, self.dave) = (self.server.client(), self.server.client());
        let admin = &mut self.admin;
        if admin.run("MODULE LIST").items().iter().any(|module| module.get("name") == "gate") {
            eventually("the second module is unloaded", || admin.run("MODULE UNLOAD gate") == "OK");
        }
        for counter in ["waiters", "waiters_notified", "contended_locks", "sessions"] {
            eventually(counter, || info_lock(admin, counter) == 0);
        }
        admin.ok("FLUSHALL");
    }

    /// How often an entry has panicked, as the log says.
    pub fn panics_in_log(&self, entry: &str) -> usize {
        self.log_has(&format!("{PANIC}: {entry}: failpoint "))
    }

    fn log_has(&self, text: &str) -> usize {
        self.server.log().matches(text).count()
    }
}
