//! What all threads of a load run share.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use support::{Reply, happens_within};

use crate::evidence::{Evidence, Spans};
use crate::history::{History, HistoryFile};
use crate::keys::{DATABASES, Keys};
use crate::link::Link;
use crate::report::Rule;
use crate::scenario::{Scenario, Settings};
use crate::servers::Servers;
use crate::token::Tokens;

/// After this number of connections in a row that were refused or closed the server counts as gone.
const REFUSALS: u32 = 200;
/// How long servers may take to agree about their roles, and to copy all data, on a busy machine.
pub const AGREEMENT: Duration = Duration::from_secs(10);

pub struct Run {
    pub settings: Settings,
    /// Of the server with each database, or in a cluster with the slot that stands for it. The thread that makes faults
    /// changes them.
    ports: [AtomicU16; DATABASES as usize],
    pub started: Instant,
    pub deadline: Instant,
    pub keys: Keys,
    pub tokens: Tokens,
    pub history: Arc<History>,
    /// No FLUSHALL begins while another owner has this.
    pub no_flushes: Arc<()>,
    /// Whether the append-only file is behind DEBUG RELOAD: the file still has the keys that had expired.
    pub file_is_stale: AtomicBool,
    /// Whether MOVE can be sent: Valkey 8 logs it with the wrong database when a module listens.
    pub moves_keys: bool,
    suffixes: Vec<String>,
}

impl Deref for Run {
    type Target = History;

    fn deref(&self) -> &History {
        &self.history
    }
}

impl Run {
    pub fn new(servers: &Servers, settings: Settings, times: (Instant, Instant), file: HistoryFile) -> Self {
        let (started, deadline) = times;
        let keys = Keys::new(settings.keys_in_each_part, settings.evicts(), &servers.suffixes());
        let evidence = Evidence {
            longest_lease_ms: Spans::beginning_with(settings.max_lease_ms),
            recovery_ms: Spans::beginning_with(settings.recovery_ms),
            refusals: settings.refusals(),
            sets_clock: settings.scenario == Scenario::Clock,
            checks_replies: true,
            ..Evidence::default()
        };
        Self {
            ports: std::array::from_fn(|database| AtomicU16::new(servers.port_of(database))),
            started,
            deadline,
            history: History::new(started, 0, keys.all(), evidence, file),
            keys,
            tokens: Tokens::default(),
            no_flushes: Arc::default(),
            file_is_stale: AtomicBool::new(false),
            moves_keys: !servers.server().flavour().is("valkey 8"),
            suffixes: servers.suffixes(),
            settings,
        }
    }

    pub fn is(&self, scenario: Scenario) -> bool {
        self.settings.scenario == scenario
    }

    pub fn is_refusal(&self, reply: &Reply) -> bool {
        self.evidence.refusal(reply).is_some()
    }

    pub fn port_of(&self, database: u32) -> u16 {
        self.ports[database as usize].load(Ordering::SeqCst)
    }

    pub fn server_is_back_at(&self, port: u16) {
        self.ports.iter().for_each(|own| own.store(port, Ordering::SeqCst));
        self.evidence.changes.end_all();
    }

    pub fn moves(&self, database: u32, port: u16) {
        self.ports[database as usize].store(port, Ordering::SeqCst);
        self.evidence.changes.mark(());
    }

    pub fn in_cluster(&self) -> bool {
        !self.suffixes.is_empty()
    }

    /// The end of each key of a database in a cluster; empty elsewhere.
    pub fn suffix(&self, database: u32) -> &str {
        self.suffixes.get(database as usize).map_or("", String::as_str)
    }

    pub fn is_over(&self) -> bool {
        self.failures.first().is_some()
    }

    pub fn goes_on(&self) -> bool {
        !self.is_over() && Instant::now() < self.deadline
    }

    /// Opens a connection; `None` if the run is over, also because there is no server any more.
    pub fn connect(&self, database: u32, resp3: bool) -> Option<Link> {
        let mut refusals = 0;
        while refusals < REFUSALS && !self.is_over() {
            let (port, selected) = self.address_of(database);
            if let Some(link) = Link::open(&self.history, port, selected, resp3) {
                return Some(link.for_database(database));
            }
            refusals = if self.evidence.changes.is_open() { 0 } else { refusals + 1 };
            sleep(Duration::from_millis(5));
        }
        self.fails("the server lives", "it takes no connections any more");
        None
    }

    /// The port of the server with this database, and the database to select there: in a cluster, where slots stand for
    /// databases, the only one.
    pub fn address_of(&self, database: u32) -> (u16, u32) {
        (self.port_of(database), if self.in_cluster() { 0 } else { database })
    }

    /// Returns this connection if it still leads to the server that clients talk to.
    pub fn current(&self, link: Option<Link>) -> Option<Link> {
        link.filter(|link| link.port() == self.port_of(link.database()))
    }

    pub fn fails(&self, rule: Rule, what: impl AsRef<str>) {
        self.failures.report(rule, what);
    }

    pub fn make_fault(&self, kind: &'static str, what: &str) {
        self.counters.count(kind);
        self.fault(what);
    }

    pub fn rest(&self, span: Duration) {
        let until = Instant::now() + span;
        while !self.is_over() && Instant::now() < until {
            sleep(until.saturating_duration_since(Instant::now()).min(Duration::from_millis(50)));
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

    pub fn eventually(&self, condition: impl FnMut() -> bool) -> bool {
        self.within(AGREEMENT, condition)
    }

    pub fn within(&self, span: Duration, mut condition: impl FnMut() -> bool) -> bool {
        let mut is_true = false;
        happens_within(span, || {
            is_true = condition();
            is_true || self.is_over()
        });
        is_true
    }

    /// Whether no lease of this length was too long at any time since then.
    pub fn allows_lease(&self, lease_ms: u64, since: Instant) -> bool {
        self.evidence.cut(Some(lease_ms), since, Instant::now()) == Some(lease_ms)
    }
}
