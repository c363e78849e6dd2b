//! What all threads of a run share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::{Duration, Instant};

use support::{Reply, now_us};

use crate::Part;
use crate::clients::network::Network;
use crate::evidence::{Flushes, InForce, Nodes, Pauses, StallLog};
use crate::history::{History, HistoryFile, Hold};
use crate::keys::{Key, Keys};
use crate::link::Link;
use crate::report::{Counters, Finding, Rule};
use crate::scenario::{Scenario, Settings};
use crate::servers::Servers;
use crate::token::Tokens;

/// After this number of connections in a row that were refused or closed the server counts as gone.
const REFUSALS: u32 = 200;
const POLL: Duration = Duration::from_millis(5);
/// How long servers may take to agree about their roles, and to copy all data, on a busy machine.
pub const AGREEMENT: Duration = Duration::from_secs(10);

pub struct Run {
    pub settings: Settings,
    pub nodes: Nodes,
    /// A moment before the start of the server.
    pub started: Instant,
    /// The same by the wall clock of that time, in Unix time.
    started_us: i64,
    /// When clients begin nothing new any more.
    pub deadline: Instant,
    pub keys: Keys,
    pub tokens: Tokens,
    pub history: Arc<History>,
    pub stalls: StallLog,
    pub flushes: Flushes,
    pub pauses: Pauses,
    pub in_force: InForce,
    pub network: Network,
    pub counters: Counters,
    /// Whether the append-only file is behind DEBUG RELOAD: the file still has the keys that had expired.
    pub file_is_stale: AtomicBool,
    /// Whether MOVE can be sent: Valkey 8 logs it with the wrong database when a module listens.
    pub moves_keys: bool,
    suffixes: Vec<String>,
    pub without: Vec<Part>,
}

impl Run {
    pub fn new(
        servers: &Servers,
        settings: Settings,
        started: Instant,
        deadline: Instant,
        without: Vec<Part>,
        file: Option<HistoryFile>,
    ) -> Self {
        let keys = Keys::new(settings.keys_in_each_part, settings.evicts(), &servers.suffixes());
        Self {
            nodes: Nodes::at(|database| servers.port_of(database)),
            started,
            started_us: start_us(started),
            deadline,
            history: History::new(started, 0, keys.all().iter(), file),
            keys,
            tokens: Tokens::default(),
            stalls: StallLog::default(),
            flushes: Flushes::default(),
            pauses: Pauses::default(),
            in_force: InForce::start_with(settings.max_lease_ms, settings.recovery_ms),
            network: Network::default(),
            counters: Counters::since(started),
            file_is_stale: AtomicBool::new(false),
            moves_keys: !servers.server().flavour().is("valkey 8"),
            suffixes: servers.suffixes(),
            without,
            settings,
        }
    }

    /// Whether this part is not left out.
    pub fn has(&self, part: Part) -> bool {
        !self.without.contains(&part)
    }

    pub fn is(&self, scenario: Scenario) -> bool {
        self.settings.scenario == scenario
    }

    pub fn has_steady_clock(&self) -> bool {
        self.settings.scenario.has_steady_clock()
    }

    /// Whether this is an error with which the server refuses a command because of a fault, before it has done anything
    /// of it.
    pub fn is_refusal(&self, reply: &Reply) -> bool {
        self.refusal(reply).is_some()
    }

    /// The code of such an error.
    pub fn refusal(&self, reply: &Reply) -> Option<&'static str> {
        let Reply::Error(line) = reply else { return None };
        self.settings.refusals().iter().copied().find(|code| line.starts_with(code))
    }

    pub fn in_cluster(&self) -> bool {
        !self.suffixes.is_empty()
    }

    /// The end of each key of a database in a cluster; empty elsewhere.
    pub fn suffix(&self, database: u32) -> &str {
        self.suffixes.get(database as usize).map_or("", String::as_str)
    }

    /// Whether the run is over because of a failure.
    pub fn is_over(&self) -> bool {
        self.history.failures.first().is_some()
    }

    /// Whether clients may begin something new.
    pub fn goes_on(&self) -> bool {
        !self.is_over() && Instant::now() < self.deadline
    }

    /// Opens a connection; `None` if the run is over, also because there is no server any more.
    pub fn connect(&self, database: u32, resp3: bool) -> Option<Link> {
        let mut refusals = 0;
        while refusals < REFUSALS {
            if self.is_over() {
                return None;
            }
            let (port, selected) = self.address_of(database);
            if let Some(link) = Link::open(&self.history, port, selected, resp3) {
                return Some(link.for_database(database));
            }
            refusals = if self.nodes.is_down() { 0 } else { refusals + 1 };
            sleep(POLL);
        }
        self.report("the server lives", "it takes no connections any more");
        None
    }

    /// The port of the server with this database, and the database to select there: in a cluster, where slots stand for
    /// databases, the only one.
    pub fn address_of(&self, database: u32) -> (u16, u32) {
        (self.nodes.port_of(database), if self.in_cluster() { 0 } else { database })
    }

    /// Returns this connection if it still leads to the server that clients talk to.
    pub fn current(&self, link: Option<Link>) -> Option<Link> {
        link.filter(|link| link.port() == self.nodes.port_of(link.database()))
    }

    /// Reports a failure that concerns no lock of the run.
    pub fn report(&self, rule: Rule, what: impl AsRef<str>) {
        self.history.failures.report(rule, what);
    }

    /// Reports a failure of a lock, with the history of that lock.
    pub fn report_lock(&self, key: &Key, rule: Rule, what: &str) {
        let history = self.history.report(key.database, &key.name);
        // Leases end by the wall clock: if it was set during the run, both times differ.
        let [then, now] = [self.started_us, start_us(self.started)].map(|us| us as f64 / 1000.0);
        let text = format!(
            "{} in database {}, {what}\nits history, in ms since the start, which was at {then:.1} by the clock of that time, and at \
             {now:.1} by the clock of now:\n{history}",
            key.name, key.database
        );
        self.report(rule, text);
    }

    /// The same for a finding. Rough keys are promised less.
    pub fn check_strict(&self, key: &Key, finding: Finding) {
        if let Some((rule, what)) = finding.filter(|_| key.is_strict()) {
            self.report_lock(key, rule, &what);
        }
    }

    /// Notes that a token certainly held a lock. Strict locks are checked.
    pub fn confirm(&self, key: &Key, hold: Hold) {
        if key.is_strict() {
            self.check_strict(key, self.history.confirm(key, hold));
        }
    }

    /// Counts a fault that is made now, and notes it.
    pub fn fault(&self, kind: &'static str, what: &str) {
        self.counters.count(kind);
        self.history.fault(what);
    }

    /// Sleeps, but not beyond the end of the run.
    pub fn rest(&self, span: Duration) {
        let until = Instant::now() + span;
        while !self.is_over() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            sleep(left.min(Duration::from_millis(50)));
        }
    }

    /// Sleeps as a client does between two requests: not at all in a soak, which is about throughput.
    pub fn think(&self, span: Duration) {
        if !self.is(Scenario::Soak) {
            self.rest(span);
        }
    }

    /// Returns the longest lease or wait, in milliseconds: a 20th in a soak.
    pub fn shorter(&self, ms: u64) -> u64 {
        if self.is(Scenario::Soak) { ms / 20 } else { ms }
    }

    /// Waits for a condition; false if it does not come true in time.
    pub fn eventually(&self, mut condition: impl FnMut() -> bool) -> bool {
        let deadline = Instant::now() + AGREEMENT;
        while !condition() {
            if self.is_over() || Instant::now() > deadline {
                return false;
            }
            sleep(POLL);
        }
        true
    }

    /// Whether no lease of this length was too long at any time since then.
    pub fn allows_lease(&self, lease_ms: u64, since: Instant) -> bool {
        self.in_force.cut(Some(lease_ms), since, Instant::now()) == Some(lease_ms)
    }
}

/// The start by the wall clock of now, in Unix time.
fn start_us(started: Instant) -> i64 {
    now_us() - i64::try_from(started.elapsed().as_micros()).unwrap_or_default()
}
