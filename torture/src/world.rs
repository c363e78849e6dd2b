//! What all threads of a run share.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::{Duration, Instant};

use support::{Reply, now_us};

use crate::Part;
use crate::court::Court;
use crate::figures::Figures;
use crate::flushes::Flushes;
use crate::ground::{Ground, Kind};
use crate::keys::{Key, Keys};
use crate::ledger::Ledger;
use crate::link::Link;
use crate::network::Network;
use crate::pauses::Pauses;
use crate::scene::Scene;
use crate::settings::Settings;
use crate::token::Mint;
use crate::weather::Weather;
use crate::whereabouts::Whereabouts;

/// After so many connections that were refused or closed, one after the other, the server counts as gone.
const REFUSALS: u32 = 200;

pub struct World {
    pub server: Whereabouts,
    /// A moment before the server's start.
    pub started: Instant,
    /// The same by the wall clock, as it went then, in Unix time.
    started_us: i64,
    /// When clients stop to begin anything new.
    pub deadline: Instant,
    pub keys: Keys,
    pub mint: Mint,
    pub ledger: Ledger,
    pub court: Court,
    pub weather: Weather,
    pub flushes: Flushes,
    pub pauses: Pauses,
    pub settings: Settings,
    pub network: Network,
    pub figures: Figures,
    pub unblocked: Unblocked,
    /// Whether the append-only file is behind a reload: it still has what had expired by then, which a reload leaves
    /// out and tells the file nothing of.
    pub file_is_stale: AtomicBool,
    /// Whether MOVE can be sent: Valkey 8 logs it with the wrong database when a module listens.
    pub moves_keys: bool,
    /// Whether locks stay as they are when nobody touches them.
    pub has_quiet_locks: bool,
    /// Whether a server may become a replica, which forgets those who have blocked and want no answer.
    pub changes_roles: bool,
    /// Whether leases end when they must by the machine's clock.
    pub is_clock_steady: bool,
    refusals: &'static [&'static str],
    suffixes: Vec<String>,
    without: Vec<Part>,
}

impl World {
    pub fn new(
        scene: &Scene,
        ground: &Ground,
        started: Instant,
        deadline: Instant,
        keys: Keys,
        without: Vec<Part>,
    ) -> Self {
        let ledger = Ledger::of(started, keys.all().iter().map(|key| key.limit));
        Self {
            server: Whereabouts::at(|database| scene.port_of(database)),
            started,
            started_us: start_us(started),
            deadline,
            keys,
            mint: Mint::default(),
            ledger,
            court: Court::default(),
            weather: Weather::default(),
            flushes: Flushes::default(),
            pauses: Pauses::default(),
            settings: Settings::default(),
            network: Network::default(),
            figures: Figures::since(started),
            unblocked: Unblocked::default(),
            file_is_stale: AtomicBool::new(false),
            moves_keys: !scene.server().flavour().is("valkey 8"),
            has_quiet_locks: ground.has_quiet_locks(),
            changes_roles: ground.kind() == Kind::Replicas,
            is_clock_steady: ground.kind() != Kind::Clock,
            refusals: ground.refusals(),
            suffixes: scene.suffixes(),
            without,
        }
    }

    /// What is left out.
    pub fn without(&self) -> &[Part] {
        &self.without
    }

    /// Whether this is not left out.
    pub fn has(&self, part: Part) -> bool {
        !self.without.contains(&part)
    }

    /// Whether this is an error with which the server refuses a command because of a fault, and before it has done anything of
    /// it.
    pub fn is_refusal(&self, reply: &Reply) -> bool {
        self.refusal(reply).is_some()
    }

    /// The code of such an error.
    pub fn refusal(&self, reply: &Reply) -> Option<&'static str> {
        let Reply::Error(line) = reply else { return None };
        self.refusals.iter().copied().find(|code| line.starts_with(code))
    }

    /// Whether the keys of each database lie in a slot of a cluster.
    pub fn in_cluster(&self) -> bool {
        !self.suffixes.is_empty()
    }

    /// What makes a key one of a database in a cluster; empty elsewhere.
    pub fn suffix(&self, database: u32) -> &str {
        self.suffixes.get(database as usize).map_or("", String::as_str)
    }

    /// Whether anything new is to be begun.
    pub fn goes_on(&self) -> bool {
        !self.court.is_over() && Instant::now() < self.deadline
    }

    /// A connection; None when the run is over, also because there is no server any more.
    pub fn connect(&self, database: u32, resp3: bool) -> Option<Link> {
        let mut refusals = 0;
        while refusals < REFUSALS {
            if self.court.is_over() {
                return None;
            }
            let (port, selected) = self.address_of(database);
            if let Some(link) = Link::open(port, selected, resp3) {
                return Some(link.standing_for(database));
            }
            refusals = if self.server.is_away() { 0 } else { refusals + 1 };
            sleep(Duration::from_millis(5));
        }
        self.court.charge("the server lives", "it takes no connections any more".to_owned());
        None
    }

    /// The port of the server that has this database, and the one to select there: in a cluster, where a slot is in its
    /// place, the only one.
    pub fn address_of(&self, database: u32) -> (u16, u32) {
        (self.server.port_of(database), if self.in_cluster() { 0 } else { database })
    }

    /// This connection, if it is one to the server that clients talk to now.
    pub fn still(&self, link: Option<Link>) -> Option<Link> {
        link.filter(|link| self.is_served_by(link))
    }

    /// Whether this connection is one to the server that clients talk to now.
    pub fn is_served_by(&self, link: &Link) -> bool {
        link.port() == self.server.port_of(link.database())
    }

    /// Reports what is wrong with a lock, with its history. Rough keys are promised less.
    pub fn charge(&self, key: &Key, rule: &'static str, what: &str) {
        if key.is_strict() {
            self.accuse(key, rule, what);
        }
    }

    /// Reports what is wrong with any lock, with its history.
    pub fn accuse(&self, key: &Key, rule: &'static str, what: &str) {
        let (name, database, history) = (&key.name, key.database, self.ledger.history(key.number));
        // Leases are told by the wall clock: if that was set meanwhile, both times differ.
        let [then, now] = [self.started_us, start_us(self.started)].map(|us| us as f64 / 1000.0);
        let text = format!(
            "{name} in database {database}, {what}\nits history, in ms since the start, which was at {then:.1} by the clock of \
             then, and at {now:.1} by that of now:\n{history}"
        );
        self.court.charge(rule, text);
    }

    /// Counts a fault that is made now, and notes it for the report if it meets more than one lock.
    pub fn fault(&self, kind: &'static str, what: &str) {
        self.figures.fault(kind);
        self.note_fault(what);
    }

    /// Notes for the report what is done to the server.
    pub fn note_fault(&self, what: &str) {
        self.ledger.note_for_all(Instant::now(), format!("fault: {what}"));
    }

    /// Sleeps, but not beyond the end of the run.
    pub fn rest(&self, span: Duration) {
        let until = Instant::now() + span;
        while !self.court.is_over() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            sleep(left.min(Duration::from_millis(50)));
        }
    }
}

/// The connections that CLIENT UNBLOCK was sent for. Some servers send such a client one reply too many when the grant
/// falls into the same round of the loop, so it has to close the connection once it has read its answer.
#[derive(Default)]
pub struct Unblocked(Mutex<HashSet<i64>>);

impl Unblocked {
    /// Call it before the command leaves: then who reads an answer that was made by it, or together with it, knows.
    pub fn add(&self, id: i64) {
        self.0.lock().expect("no panic").insert(id);
    }

    pub fn contains(&self, id: i64) -> bool {
        self.0.lock().expect("no panic").contains(&id)
    }
}

/// The start by the wall clock as it goes now, in Unix time.
fn start_us(started: Instant) -> i64 {
    now_us() - i64::try_from(started.elapsed().as_micros()).unwrap_or_default()
}
