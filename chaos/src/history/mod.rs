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
//! | `lease_ms` | the lease that the request names |
//! | `lease_end` | the earliest end of the lease; `lock.max-lease-ms` can cut it, see the faults |
//!
//! Requests of one connection can overlap. An operation with an unknown outcome has an effect now, later or never.
//!
//! A line with `closed` is about a connection that was closed between `since` and `at`, which ends its sessions.
//! A line with `message` has `at`, `server`, `token`, `lock`, `database`, and `lease_end_unix_ms` of a grant. A line
//! with `fault` has `at` and says which fault it was: external commands that remove all locks (FLUSHALL), settings,
//! restarts.

mod file;
mod holds;
mod judge;
mod operation;
mod requests;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Reply, now_ms};

use crate::evidence::{Evidence, NOTHING_IN_A_PAUSE};
use crate::keys::Key;
use crate::report::{Counters, Failures, Finding, Rule};
use crate::token::Token;
use holds::{Fences, Lock};
use judge::{Exchange, Message, Record, Ruling};
use operation::{Action, Operation};

pub use file::HistoryFile;
pub use holds::Hold;
pub use judge::EXPECTED;
pub use operation::Kind;
pub use requests::{Endpoint, Request, Requests};

/// The number of events of a lock that are kept for the report of a failure.
const EVENTS: usize = 400;
/// What is known of a token is kept for so long after its first request if there are many. Longer than any wait.
const MEMORY: Duration = Duration::from_secs(30);
const MANY: usize = 500;
/// The commands that are not refused when memory has run out.
const TAKES_NO_MEMORY: [Action; 2] = [Action::Extend, Action::Release];

type Event = (Instant, String);

/// A lock with the events of its key.
#[derive(Default)]
struct Account {
    /// Its replies are judged.
    is_strict: bool,
    events: VecDeque<Event>,
    lock: Lock,
    fences: Fences,
    records: HashMap<Token, Record>,
    /// With more records than this the old ones are forgotten.
    many: usize,
}

pub struct History {
    started: Instant,
    /// The start by the wall clock of that time, in Unix time.
    started_ms: i64,
    round: u32,
    file: Option<HistoryFile>,
    /// By database and key, each with whether only LOCK commands touch it.
    accounts: BTreeMap<(u32, String), (bool, Mutex<Account>)>,
    /// Events that concern all locks.
    common: Mutex<VecDeque<Event>>,
    /// Connections for which CLIENT UNBLOCK was sent. A grant can be under way when such a client is unblocked, and
    /// some servers then send one reply too many, so the client must close the connection.
    unblocked: Mutex<HashSet<i64>>,
    /// The number of connections without a CLIENT ID.
    connections: AtomicI64,
    pub evidence: Evidence,
    pub counters: Counters,
    pub failures: Failures,
}

impl History {
    pub fn new<'k>(
        started: Instant,
        round: u32,
        keys: impl Iterator<Item = &'k Key>,
        evidence: Evidence,
        file: Option<HistoryFile>,
    ) -> Arc<Self> {
        let account = |key: &Key| {
            let (is_strict, lock) = (key.is_strict && evidence.checks_replies, Lock::with_limit(key.limit));
            let account = Account { is_strict, lock, ..Account::default() };
            ((key.database, key.name.clone()), (key.is_strict, Mutex::new(account)))
        };
        Arc::new(Self {
            started,
            started_ms: start_ms(started),
            round,
            file,
            accounts: keys.map(account).collect(),
            common: Mutex::default(),
            unblocked: Mutex::default(),
            connections: AtomicI64::new(0),
            evidence,
            counters: Counters::since(started),
            failures: Failures::default(),
        })
    }

    /// Notes that a request is about to be sent on a connection.
    fn sent(&self, endpoint: &Endpoint, request: &Request) {
        let Some(operation) = &request.operation else { return };
        let Some(mut account) = self.account(endpoint.database, &operation.lock) else { return };
        account.note(request.sent, format!("connection {} sends {}", endpoint.connection, request.line));
        let account = &mut *account;
        let (is_strict, records) = (account.is_strict, &mut account.records);
        if let (Action::Acquire(kind), true) = (operation.action, is_strict) {
            if records.len() > account.many.max(MANY) {
                records.retain(|_, record| record.begun().elapsed() < MEMORY);
                account.many = 2 * records.len();
            }
            records.entry(operation.token).or_insert_with(|| Record::new(operation, kind, request.sent, now_ms()));
        }
        records.get_mut(&operation.token).into_iter().for_each(|record| record.sent(operation, endpoint.connection));
    }

    /// Takes in the reply to a request, `None` if the connection was closed before one was read.
    fn completed(&self, endpoint: &Endpoint, request: &Request, reply: Option<&Reply>) {
        let now = Instant::now();
        let judged = reply.filter(|_| self.evidence.checks_replies);
        let finding = judged.and_then(|reply| self.check_fault(endpoint, request, reply));
        let Some(operation) = &request.operation else { return };
        let Endpoint { database, connection, is_direct, .. } = *endpoint;
        if let (Action::Acquire(kind), Some(Reply::Int(1))) = (operation.action, reply) {
            self.counters.count("grants");
            self.counters.count(kind.names().1);
        }
        let is_unblocked = self.is_unblocked(connection);
        let mut judged = None;
        if let Some(mut account) = self.account(database, &operation.lock) {
            let answered = reply.map_or("nothing".to_owned(), |reply| format!("{reply:?}"));
            account.note(now, format!("connection {connection}: the reply to {} is {answered}", request.line));
            let Request { line, sent, .. } = request;
            if let Some(reply) = reply {
                let (sent, received) = (*sent, now);
                let exchange = Exchange { operation, line, reply, sent, received, connection, is_unblocked, is_direct };
                judged = self.judge(&mut account, &exchange);
            } else {
                account.records.get_mut(&operation.token).into_iter().for_each(|record| record.lost(operation));
            }
        }
        for (rule, what) in finding.into_iter().chain(judged) {
            self.report(database, &operation.lock, rule, &format!("{}: {what}", request.line));
        }
        self.write_completed(endpoint, operation, request, reply, now);
    }

    fn judge(&self, account: &mut Account, exchange: &Exchange<'_>) -> Finding {
        let (token, evidence) = (exchange.operation.token, &self.evidence);
        let record = account.records.get_mut(&token)?;
        let (finding, ruling) = record.judge(evidence, exchange);
        let hold = record.hold(token, evidence, exchange.sent).filter(|_| ruling == Ruling::Held);
        if let (Action::Fence, Reply::Int(fence)) = (exchange.operation.action, exchange.reply) {
            self.counters.count("fencing tokens");
            let (fences, flushes) = (&mut account.fences, &evidence.flushes);
            if let Some(before) = fences.draw(flushes, exchange.sent, exchange.received, *fence) {
                return Some(("fencing tokens rise", format!("{fence} was drawn after {before}")));
            }
        }
        let is_released = exchange.operation.action == Action::Release && *exchange.reply == 0;
        match ruling {
            Ruling::Held => record.held(evidence, exchange),
            Ruling::Over if record.is_flushed(evidence, exchange.sent) => {
                self.counters.count("locks lost to FLUSHALL");
            }
            _ => {}
        }
        if ruling == Ruling::Over || is_released {
            account.records.remove(&token);
        }
        let broken = if let Ruling::Broken(rule) = ruling { Some(rule) } else { None };
        let broken = broken.map(|rule| (rule, format!("the reply is {:?}", exchange.reply)));
        finding.or(broken).or_else(|| self.confirm_in(account, hold?))
    }

    /// A write that is sent in a pause is answered after it, and memory that runs out does not concern all commands.
    fn check_fault(&self, endpoint: &Endpoint, request: &Request, reply: &Reply) -> Finding {
        let operation = request.operation.as_ref()?;
        let has_written = matches!(reply, Reply::Int(_)) || *reply == Reply::waiting();
        if has_written && self.evidence.pause_covers(endpoint.server, request.sent, Instant::now()) {
            return Some((NOTHING_IN_A_PAUSE, format!("it was sent in a pause, and the reply in it is {reply:?}")));
        }
        let code = self.evidence.refusal(reply)?;
        self.counters.count(code);
        let is_wrong = code == "OOM" && TAKES_NO_MEMORY.contains(&operation.action);
        is_wrong.then(|| ("RELEASE and EXTEND succeed when memory has run out", "the reply is OOM".to_owned()))
    }

    fn write_completed(
        &self,
        endpoint: &Endpoint,
        operation: &Operation,
        request: &Request,
        reply: Option<&Reply>,
        now: Instant,
    ) {
        if self.file.is_none() {
            return;
        }
        let Endpoint { server, database, connection, .. } = *endpoint;
        let account = self.accounts.get(&(database, operation.lock.clone()));
        let external = account.is_none_or(|(is_strict, _)| !is_strict);
        let outcome = operation.outcome(reply, self.is_unblocked(connection));
        let lease_ms = operation.lease_ms.filter(|_| outcome == "granted");
        let lease_end = lease_ms.map(|ms| self.us(request.sent + Duration::from_millis(ms)));
        let kind = if let Action::Acquire(kind) = operation.action { Some(kind.names().0) } else { None };
        let fence =
            if let (Action::Fence, Some(Reply::Int(fence))) = (operation.action, reply) { Some(fence) } else { None };
        self.write(&json!({ "round": self.round, "invoked": self.us(request.sent), "lease_end": lease_end,
            "completed": reply.map(|_| self.us(now)), "server": server, "connection": connection, "database": database,
            "external": external, "operation": operation.name(), "lock": operation.lock, "fence": fence, "kind": kind,
            "lease_ms": operation.lease_ms, "token": operation.token.to_string(), "limit": operation.limit, "hold": operation.hold,
            "session": operation.session, "outcome": outcome, "reply": reply.map(ToString::to_string) }));
    }

    pub fn message(&self, server: u16, key: &Key, at: Instant, [event, end, token]: [&str; 3]) {
        let end_ms = end.parse::<i64>().ok().filter(|end| *end > 0);
        self.write(&json!({ "round": self.round, "at": self.us(at), "message": event, "server": server,
            "database": key.database, "lock": key.name, "token": token, "lease_end_unix_ms": end_ms }));
        let Some(mut account) = self.account(key.database, &key.name) else { return };
        account.note(at, format!("message: {event} {end} {token}"));
        let record = Token::read(token.as_bytes()).and_then(|token| account.records.get_mut(&token));
        let Some((record, lease_end_ms)) = record.zip(end_ms.filter(|_| event == "granted")) else { return };
        let message = Message { server, received: at, received_ms: now_ms(), lease_end_ms };
        let finding = record.message(&self.evidence, &message);
        drop(account);
        self.check(key, finding.map(|(rule, what)| (rule, format!("{token}: {what}"))));
    }

    /// A client does nothing more with a token that may hold.
    pub fn abandon(&self, key: &Key, token: Token) {
        let Some(mut account) = self.account(key.database, &key.name) else { return };
        let hold = account.records.remove(&token).and_then(|record| record.last_hold(token, &self.evidence));
        let finding = hold.and_then(|hold| self.confirm_in(&mut account, hold));
        drop(account);
        self.check(key, finding);
    }

    /// Notes a hold, which must not contradict the holds and queues that are known.
    pub fn confirm(&self, key: &Key, hold: Hold) -> Finding {
        self.confirm_in(&mut *self.account(key.database, &key.name)?, hold)
    }

    fn confirm_in(&self, account: &mut Account, hold: Hold) -> Finding {
        let (finding, together) = account.lock.confirm(hold);
        self.counters.raise("shares together", together);
        finding.map(|(rule, other)| (rule, format!("{}\n{}", self.shown(&hold), self.shown(&other))))
    }

    /// Notes that a connection was closed, some time after its last reply.
    fn closed(&self, endpoint: &Endpoint, last_reply: Instant) {
        let (since, at) = (self.us(last_reply), self.us(Instant::now()));
        let Endpoint { server, connection, .. } = endpoint;
        self.write(&json!({ "round": self.round, "at": at, "since": since, "closed": connection, "server": server }));
    }

    pub fn fault(&self, what: &str) {
        let now = Instant::now();
        remember(&mut locked(&self.common), (now, format!("fault: {what}")));
        self.write(&json!({ "round": self.round, "at": self.us(now), "fault": what }));
    }

    /// Returns a number for a connection whose CLIENT ID is not asked for.
    pub fn next_connection(&self) -> i64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes, before CLIENT UNBLOCK or CLIENT KILL is sent, which connection it is for.
    pub fn unblocks(&self, connection: i64) {
        locked(&self.unblocked).insert(connection);
    }

    pub fn is_unblocked(&self, connection: i64) -> bool {
        locked(&self.unblocked).contains(&connection)
    }

    pub fn saw_queue(&self, key: &Key, at: Instant, queue: Vec<Token>) {
        if let Some(mut account) = self.account(key.database, &key.name) {
            account.lock.saw_queue(at, queue);
        }
    }

    /// Reports a finding about a lock. Rough locks are promised less.
    pub fn check(&self, key: &Key, finding: Finding) {
        self.check_any(key, finding.filter(|_| key.is_strict));
    }

    pub fn check_any(&self, key: &Key, finding: Finding) {
        if let Some((rule, what)) = finding {
            self.report(key.database, &key.name, rule, &what);
        }
    }

    /// Reports a failure of a lock, with its events. Leases end by the wall clock: if it was set during the run, both
    /// times of the start differ.
    pub fn report(&self, database: u32, name: &str, rule: Rule, what: &str) {
        let (then, now, events) = (self.started_ms, start_ms(self.started), self.events(database, name));
        let text = format!(
            "{name} in database {database}, {what}\nits history, in ms since the start, which was at {then} by the clock of that \
             time, and at {now} by the clock of now:\n{events}"
        );
        self.failures.report(rule, text);
    }

    /// Returns the events of a key, one line each, in the order of time.
    pub fn events(&self, database: u32, name: &str) -> String {
        let Some(account) = self.account(database, name) else { return String::new() };
        let common = locked(&self.common);
        let first = account.events.iter().map(|(at, _)| *at).min();
        let during = common.iter().filter(|(at, _)| first.is_some_and(|first| *at >= first));
        let mut all: Vec<&Event> = account.events.iter().chain(during).collect();
        all.sort_by_key(|(at, _)| *at);
        all.iter().fold(String::new(), |mut text, (at, event)| {
            let _ = writeln!(text, "  {:10.1} {event}", self.ms(*at));
            text
        })
    }

    fn account(&self, database: u32, name: &str) -> Option<MutexGuard<'_, Account>> {
        self.accounts.get(&(database, name.to_owned())).map(|(_, account)| locked(account))
    }

    fn write(&self, line: &Value) {
        self.file.iter().for_each(|file| file.write(line));
    }

    fn us(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.started).as_micros()).unwrap_or(u64::MAX)
    }

    fn ms(&self, at: Instant) -> f64 {
        at.saturating_duration_since(self.started).as_secs_f64() * 1000.0
    }

    fn shown(&self, hold: &Hold) -> String {
        format!("{} held from {:.1} to {:.1} ms", hold.token, self.ms(hold.from), self.ms(hold.until))
    }
}

impl Account {
    fn note(&mut self, at: Instant, text: String) {
        remember(&mut self.events, (at, text));
    }
}

fn remember(events: &mut VecDeque<Event>, event: Event) {
    events.push_back(event);
    if events.len() > EVENTS {
        events.pop_front();
    }
}

/// The start by the wall clock of now, in Unix time.
fn start_ms(started: Instant) -> i64 {
    now_ms() - i64::try_from(started.elapsed().as_millis()).unwrap_or_default()
}

/// Locks a list that many threads of a run change.
pub fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().expect("no panic")
}
