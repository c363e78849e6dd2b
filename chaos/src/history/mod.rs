//! The history of a run: each request to a lock with its reply, each message about a wait, and each fault.
//!
//! `--history FILE` writes it as JSON lines, in the order in which operations complete. Times are microseconds since
//! the start of the run by the monotonic clock of the clients. A line with `operation` is an operation:
//!
//! | field | meaning |
//! |---|---|
//! | `round` | the number of the round in the failover scenarios, where each round has locks of its own; else 0 |
//! | `invoked`, `completed` | before the request was sent, after its reply was read; `completed` is null without a reply |
//! | `server`, `connection` | the port, and the CLIENT ID there (in failover scenarios a number of this program) |
//! | `database`, `lock` | the key of the lock |
//! | `external` | whether other commands can change the key too, as those of the locks of single checks |
//! | `operation` | `acquire`, `extend`, `release` or `fence` |
//! | `kind` | of an acquire: `mutex`, `reentrant` or `share`. The other operations apply to what the token holds |
//! | `limit`, `hold`, `session` | LIMIT of a share, HOLD of a re-entrant lock, whether SESSION was given |
//! | `token` | a token is used by one client for one span from the first acquire to the last release |
//! | `outcome` | `granted`, `released`, `refused` (no effect), `waiting` (a message follows), `unknown` |
//! | `reply` | the reply as text; null without one |
//! | `fence` | the fencing token that was drawn |
//! | `lease_end` | the earliest end of the lease; `lock.max-lease-ms` can cut it, see the faults |
//!
//! Requests of one connection can overlap. An operation with an unknown outcome has an effect now, later or never.
//!
//! A line with `closed` is about a connection that was closed between `since` and `at`, which ends its sessions.
//! A line with `message` has `at`, `server`, `token`, `lock`, `database`, and `lease_end_unix_ms` of a grant. A line
//! with `fault` has `at` and says which fault it was: external commands that remove all locks (FLUSHALL), settings,
//! restarts.

mod holds;
mod operation;
mod requests;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::keys::Key;
use crate::report::{Failures, Finding};
use holds::{Fences, Lock};
pub use holds::{Form, Hold};
pub use operation::Operation;
pub use requests::{Request, Requests};

/// The number of events of a lock that are kept for the report of a failure.
const EVENTS: usize = 400;

/// The file that a history is written to.
#[derive(Clone)]
pub struct HistoryFile(Arc<Mutex<BufWriter<File>>>);

/// One event, for the report.
struct Event {
    at: Instant,
    text: String,
}

/// A lock with the events of its key.
struct Account {
    is_strict: bool,
    events: Mutex<VecDeque<Event>>,
    lock: Mutex<Lock>,
    fences: Mutex<Fences>,
}

pub struct History {
    started: Instant,
    round: u32,
    file: Option<HistoryFile>,
    accounts: BTreeMap<(u32, String), Account>,
    /// Events that concern all locks.
    common: Mutex<VecDeque<Event>>,
    /// Connections for which CLIENT UNBLOCK was sent. A grant can be under way when such a client is unblocked, and
    /// some servers then send one reply too many, so the client must close the connection.
    unblocked: Mutex<HashSet<i64>>,
    /// How often the counters of fencing tokens may have been lost.
    counters_lost: AtomicU64,
    /// The number of connections without a CLIENT ID.
    connections: AtomicI64,
    most_together: AtomicUsize,
    pub failures: Failures,
}

impl HistoryFile {
    /// Creates the file.
    ///
    /// # Errors
    ///
    /// The file cannot be created.
    pub fn create(path: &Path) -> std::io::Result<Self> {
        Ok(Self(Arc::new(Mutex::new(BufWriter::new(File::create(path)?)))))
    }

    fn write(&self, line: &Value) {
        let mut file = self.0.lock().expect("no panic");
        serde_json::to_writer(&mut *file, line).expect("a line that can be written");
        file.write_all(b"\n").expect("a line that can be written");
    }
}

impl History {
    pub fn new<'k>(
        started: Instant,
        round: u32,
        keys: impl Iterator<Item = &'k Key>,
        file: Option<HistoryFile>,
    ) -> Arc<Self> {
        let account = |key: &Key| Account {
            is_strict: key.is_strict(),
            events: Mutex::default(),
            lock: Mutex::new(Lock::with_limit(key.limit)),
            fences: Mutex::default(),
        };
        Arc::new(Self {
            started,
            round,
            file,
            accounts: keys.map(|key| ((key.database, key.name.clone()), account(key))).collect(),
            common: Mutex::default(),
            unblocked: Mutex::default(),
            counters_lost: AtomicU64::new(0),
            connections: AtomicI64::new(0),
            most_together: AtomicUsize::new(0),
            failures: Failures::default(),
        })
    }

    /// Notes that a request was sent on a connection.
    fn sent(&self, database: u32, connection: i64, request: &Request) {
        if let Some(operation) = Operation::of(&request.line) {
            let text = format!("connection {connection} sends {}", request.line);
            self.note(database, operation.lock, request.sent, text);
        }
    }

    /// Takes in the reply to a request, `None` if the connection was closed before one was read.
    fn completed(
        &self,
        server: u16,
        database: u32,
        connection: i64,
        request: &Request,
        reply: Option<&support::Reply>,
    ) {
        let Some(mut operation) = Operation::of(&request.line) else { return };
        let now = Instant::now();
        let text = match reply {
            Some(reply) => format!("connection {connection}: {} is answered {reply:?}", request.line),
            None => format!("connection {connection} ends before the reply to {}", request.line),
        };
        self.note(database, operation.lock, now, text);
        operation.complete(reply, self.is_unblocked(connection));
        self.check_fence(database, &operation, request, now);
        let Some(file) = &self.file else { return };
        let external = self.account(database, operation.lock).is_none_or(|account| !account.is_strict);
        let times = [Some(request.sent), reply.map(|_| now), operation.lease_end(request.sent)];
        let [invoked, completed, lease_end] = times.map(|at| at.map(|at| self.us(at)));
        file.write(&json!({ "round": self.round, "invoked": invoked, "completed": completed, "server": server,
            "connection": connection, "database": database, "external": external, "lease_end": lease_end,
            "operation": operation.operation, "lock": operation.lock, "token": operation.token, "kind": operation.kind,
            "limit": operation.limit, "hold": operation.hold, "session": operation.session, "outcome": operation.outcome,
            "reply": operation.reply, "fence": operation.fence }));
    }

    /// A fencing token must be higher than each one whose draw had completed before.
    fn check_fence(&self, database: u32, operation: &Operation<'_>, request: &Request, now: Instant) {
        let Some(account) = self.account(database, operation.lock).filter(|account| account.is_strict) else { return };
        let kept_counters = request.counters_lost == self.counters_lost.load(Ordering::SeqCst);
        let Some(fence) = operation.fence.filter(|_| kept_counters) else { return };
        let falls = account.fences.lock().expect("no panic").draw(request.counters_lost, request.sent, now, fence);
        if let Some(before) = falls {
            let text = format!(
                "{}: {fence} was drawn after {before}\n{}",
                operation.lock,
                self.report(database, operation.lock)
            );
            self.failures.report("fencing tokens rise", text);
        }
    }

    /// Takes in a message about a wait.
    pub fn message(&self, server: u16, key: &Key, at: Instant, [event, end, token]: [&str; 3]) {
        self.note(key.database, &key.name, at, format!("message: {event} {end} {token}"));
        if let Some(file) = &self.file {
            let end = end.parse::<i64>().ok().filter(|end| *end > 0);
            let (round, at) = (self.round, self.us(at));
            file.write(
                &json!({ "round": round, "at": at, "message": event, "server": server, "database": key.database,
                "lock": key.name, "token": token, "lease_end_unix_ms": end }),
            );
        }
    }

    /// Notes that a connection was closed, some time after its last reply.
    fn closed(&self, server: u16, connection: i64, last_reply: Instant) {
        if let Some(file) = &self.file {
            let (since, at) = (self.us(last_reply), self.us(Instant::now()));
            file.write(
                &json!({ "round": self.round, "at": at, "since": since, "closed": connection, "server": server }),
            );
        }
    }

    /// Notes a fault.
    pub fn fault(&self, what: &str) {
        let now = Instant::now();
        remember(&mut self.common.lock().expect("no panic"), Event { at: now, text: format!("fault: {what}") });
        if let Some(file) = &self.file {
            file.write(&json!({ "round": self.round, "at": self.us(now), "fault": what }));
        }
    }

    /// Returns a number for a connection whose CLIENT ID is not asked for.
    pub fn next_connection(&self) -> i64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes that the counters of fencing tokens may be lost around now.
    pub fn counters_lost(&self) {
        self.counters_lost.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes, before CLIENT UNBLOCK or CLIENT KILL is sent, which connection it is for.
    pub fn unblocks(&self, connection: i64) {
        self.unblocked.lock().expect("no panic").insert(connection);
    }

    pub fn is_unblocked(&self, connection: i64) -> bool {
        self.unblocked.lock().expect("no panic").contains(&connection)
    }

    /// Notes a queue that was asked for at this time.
    pub fn saw_queue(&self, key: &Key, at: Instant, queue: Vec<crate::token::Token>) {
        if let Some(account) = self.account(key.database, &key.name) {
            account.lock.lock().expect("no panic").saw_queue(at, queue);
        }
    }

    /// Notes a hold, which must not contradict the holds and queues that are known.
    pub fn confirm(&self, key: &Key, hold: Hold) -> Finding {
        let (finding, together) = self.account(key.database, &key.name)?.lock.lock().expect("no panic").confirm(hold);
        self.most_together.fetch_max(together, Ordering::Relaxed);
        finding.map(|(rule, other)| (rule, format!("{}\n{}", self.shown(&hold), self.shown(&other))))
    }

    /// The most shares of one lock that were certainly held at the same time.
    pub fn most_together(&self) -> usize {
        self.most_together.load(Ordering::Relaxed)
    }

    /// Returns the events of a key, one line each, in the order of time.
    pub fn report(&self, database: u32, name: &str) -> String {
        let Some(account) = self.account(database, name) else { return String::new() };
        let (events, common) = (account.events.lock().expect("no panic"), self.common.lock().expect("no panic"));
        let first = events.iter().map(|event| event.at).min();
        let during = common.iter().filter(|event| first.is_some_and(|first| event.at >= first));
        let mut all: Vec<&Event> = events.iter().chain(during).collect();
        all.sort_by_key(|event| event.at);
        all.iter().fold(String::new(), |mut text, event| {
            let _ = writeln!(text, "  {:10.1} {}", self.ms(event.at), event.text);
            text
        })
    }

    fn note(&self, database: u32, name: &str, at: Instant, text: String) {
        if let Some(account) = self.account(database, name) {
            remember(&mut account.events.lock().expect("no panic"), Event { at, text });
        }
    }

    fn account(&self, database: u32, name: &str) -> Option<&Account> {
        self.accounts.get(&(database, name.to_owned()))
    }

    fn since_start(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.started)
    }

    fn us(&self, at: Instant) -> u64 {
        u64::try_from(self.since_start(at).as_micros()).unwrap_or(u64::MAX)
    }

    fn ms(&self, at: Instant) -> f64 {
        self.since_start(at).as_secs_f64() * 1000.0
    }

    fn shown(&self, hold: &Hold) -> String {
        format!("{} held from {:.1} to {:.1} ms", hold.token, self.ms(hold.from), self.ms(hold.until))
    }
}

fn remember(events: &mut VecDeque<Event>, event: Event) {
    events.push_back(event);
    if events.len() > EVENTS {
        events.pop_front();
    }
}

/// Locks a list that many threads of a run change.
pub fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().expect("no panic")
}
