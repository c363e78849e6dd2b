//! The history of a run: each request to a lock with its reply, each message about a wait, and each fault.
//!
//! `--history FILE` names the file that it is written to, as JSON lines, in the order in which operations complete. Times are microseconds since
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
mod operation;
mod record;
mod requests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::json;
use support::{Reply, now_ms};

use crate::evidence::Evidence;
use crate::keys::Key;
use crate::report::{Counters, Failures, Finding, Rule};
use crate::token::Token;
use holds::{Fences, Lock};
use operation::{Action, Operation};
use record::{Exchange, Record, Ruling};

pub use file::HistoryFile;
pub use holds::Hold;
pub use operation::Kind;
pub use record::EXPECTED;
pub use requests::{Endpoint, Request, Requests};

/// With many tokens, those are forgotten whose first request is older. Longer than any wait.
const MEMORY: Duration = Duration::from_secs(30);
const MANY: usize = 500;
const TAKES_NO_MEMORY: [Action; 2] = [Action::Extend, Action::Release];

#[derive(Default)]
struct Account {
    is_strict: bool,
    lock: Lock,
    fences: Fences,
    records: HashMap<Token, Record>,
}

pub struct History {
    started: Instant,
    round: u32,
    file: HistoryFile,
    /// By database and key, each with whether only LOCK commands touch it.
    accounts: BTreeMap<(u32, String), (bool, Mutex<Account>)>,
    /// Connections for which CLIENT UNBLOCK was sent. A grant can be under way when such a client is unblocked, and
    /// some servers then send one reply too many, so the client must close the connection.
    unblocked: Mutex<HashSet<i64>>,
    connections: AtomicI64,
    pub evidence: Evidence,
    pub counters: Counters,
    pub failures: Failures,
}

impl History {
    pub fn new(started: Instant, round: u32, keys: &[Key], evidence: Evidence, file: HistoryFile) -> Arc<Self> {
        let account = |key: &Key| {
            let (is_strict, lock) = (key.is_strict && evidence.checks_replies, Lock::with_limit(key.limit));
            let account = Account { is_strict, lock, ..Account::default() };
            ((key.database, key.name.clone()), (key.is_strict, Mutex::new(account)))
        };
        Arc::new(Self {
            started,
            round,
            file,
            accounts: keys.iter().map(account).collect(),
            unblocked: Mutex::default(),
            connections: AtomicI64::new(0),
            evidence,
            counters: Counters::since(started),
            failures: Failures::default(),
        })
    }

    fn sent(&self, endpoint: &Endpoint, request: &Request) {
        let Some(operation) = &request.operation else { return };
        let Some(mut account) = self.account(endpoint.database, &operation.lock) else { return };
        let (is_strict, records, at) = (account.is_strict, &mut account.records, request.since.0);
        if let (Action::Acquire(kind), true) = (operation.action, is_strict) {
            // In large steps: to look for old ones takes time.
            if records.len() % MANY == MANY - 1 {
                records.retain(|_, record| record.begun.elapsed() < MEMORY);
            }
            records.entry(operation.token).or_insert_with(|| Record::new(operation, kind, at, now_ms()));
        }
        records.get_mut(&operation.token).into_iter().for_each(|record| record.sent(operation, at));
    }

    fn completed(&self, endpoint: &Endpoint, request: &Request, reply: Option<&Reply>) {
        let received = Instant::now();
        let Some(operation) = &request.operation else { return };
        let mut finding = reply.and_then(|reply| self.check_refusal(operation, reply));
        let Endpoint { database, connection, is_direct, .. } = *endpoint;
        if let (Action::Acquire(kind), Some(Reply::Int(1))) = (operation.action, reply) {
            self.counters.count("grants");
            self.counters.count(kind.names().1);
        }
        let (is_unblocked, line, sent) = (self.is_unblocked(connection), &*request.line, request.since.0);
        if let Some((reply, mut account)) = reply.zip(self.account(database, &operation.lock)) {
            let exchange = Exchange { operation, line, reply, sent, received, connection, is_unblocked, is_direct };
            finding = finding.or_else(|| self.judge(&mut account, &exchange));
        }
        if let Some((rule, what)) = finding {
            self.report(database, &operation.lock, rule, &format!("{}: {what}", request.line));
        }
        self.write_completed(endpoint, request, reply);
    }

    fn judge(&self, account: &mut Account, exchange: &Exchange<'_>) -> Finding {
        let (token, evidence) = (exchange.operation.token, &self.evidence);
        let record = account.records.get_mut(&token)?;
        let (finding, ruling, hold) = record.judge(evidence, exchange);
        if let (Action::Fence, Reply::Int(fence)) = (exchange.operation.action, exchange.reply) {
            self.counters.count("fencing tokens");
            let is_lost = |since| evidence.flushes.any_since(since);
            if let Some(before) = account.fences.draw(is_lost, exchange.sent, exchange.received, *fence) {
                return Some(("fencing tokens rise", format!("{fence} was drawn after {before}")));
            }
        }
        let is_released = exchange.operation.action == Action::Release && *exchange.reply == 0;
        if ruling == Ruling::NotHeld || is_released {
            account.records.remove(&token);
        }
        let text = || format!("the reply is {:?}", exchange.reply);
        let broken = if let Ruling::Broken(rule) = ruling { Some((rule, text())) } else { None };
        finding.or(broken).or_else(|| self.confirm_in(account, hold?))
    }

    /// Counts a reply with which a fault excuses itself. Memory that has run out does not concern all commands.
    fn check_refusal(&self, operation: &Operation, reply: &Reply) -> Finding {
        let code = self.evidence.refusal(reply)?;
        self.counters.count(code);
        let is_wrong = code == "OOM" && TAKES_NO_MEMORY.contains(&operation.action);
        is_wrong.then(|| ("RELEASE and EXTEND succeed when memory has run out", "the reply is OOM".to_owned()))
    }

    fn write_completed(&self, endpoint: &Endpoint, request: &Request, reply: Option<&Reply>) {
        let Some(operation) = &request.operation else { return };
        let Endpoint { server, database, connection, .. } = *endpoint;
        let account = self.accounts.get(&(database, operation.lock.clone()));
        let external = account.is_none_or(|(is_strict, _)| !is_strict);
        let outcome = operation.outcome(reply, self.is_unblocked(connection));
        let lease_ms = operation.lease_ms.filter(|_| outcome == "granted");
        let lease_end = lease_ms.map(|ms| self.us(request.since.0 + Duration::from_millis(ms)));
        let kind = if let Action::Acquire(kind) = operation.action { Some(kind.names().0) } else { None };
        let fence =
            if let (Action::Fence, Some(Reply::Int(fence))) = (operation.action, reply) { Some(fence) } else { None };
        self.file.write(|| json!({ "round": self.round, "invoked": self.us(request.since.0), "lease_end": lease_end,
            "completed": reply.map(|_| self.us(Instant::now())), "server": server, "connection": connection, "database": database,
            "external": external, "operation": operation.name(), "lock": operation.lock, "fence": fence, "kind": kind,
            "lease_ms": operation.lease_ms, "token": operation.token.to_string(), "limit": operation.limit, "hold": operation.hold,
            "session": operation.session, "outcome": outcome, "reply": reply.map(ToString::to_string) }));
    }

    pub fn message(&self, server: u16, key: &Key, at: Instant, [event, end, token]: [&str; 3]) {
        let end_ms = end.parse::<i64>().ok().filter(|end| *end > 0);
        self.file.write(|| {
            json!({ "round": self.round, "at": self.us(at), "message": event, "server": server,
            "database": key.database, "lock": key.name, "token": token, "lease_end_unix_ms": end_ms })
        });
        let Some(mut account) = self.account(key.database, &key.name) else { return };
        let record = Token::read(token.as_bytes()).and_then(|token| account.records.get_mut(&token));
        let Some((record, end_ms)) = record.zip(end_ms.filter(|_| event == "granted")) else { return };
        let finding = record.message(&self.evidence, at, now_ms(), end_ms);
        drop(account);
        self.check(key, finding.map(|(rule, what)| (rule, format!("{token}: {what}"))));
    }

    /// A client does nothing more with a token that may hold.
    pub fn abandon(&self, key: &Key, token: Token) {
        let record = self.account(key.database, &key.name).and_then(|mut account| account.records.remove(&token));
        let hold = record.and_then(|record| record.hold(token, &self.evidence, None));
        hold.into_iter().for_each(|hold| self.confirm(key, hold));
    }

    /// Notes a hold, which must not contradict the holds and queues that are known.
    pub fn confirm(&self, key: &Key, hold: Hold) {
        let account = self.account(key.database, &key.name);
        let finding = account.and_then(|mut account| self.confirm_in(&mut account, hold));
        self.check(key, finding);
    }

    fn confirm_in(&self, account: &mut Account, hold: Hold) -> Finding {
        let finding = account.lock.confirm(hold);
        finding.map(|(rule, other)| (rule, format!("{}\n{}", self.shown(&hold), self.shown(&other))))
    }

    /// Notes that a connection was closed, some time after its last reply.
    fn closed(&self, endpoint: &Endpoint, last_reply: Instant) {
        let (since, at) = (self.us(last_reply), self.us(Instant::now()));
        let Endpoint { server, connection, .. } = endpoint;
        self.file
            .write(|| json!({ "round": self.round, "at": at, "since": since, "closed": connection, "server": server }));
    }

    pub fn fault(&self, what: &str) {
        self.file.write(|| json!({ "round": self.round, "at": self.us(Instant::now()), "fault": what }));
    }

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

    pub fn check(&self, key: &Key, finding: Finding) {
        if let Some((rule, what)) = finding {
            self.report(key.database, &key.name, rule, &what);
        }
    }

    /// Reports a failure of a lock, whose requests and messages are in the file.
    pub fn report(&self, database: u32, name: &str, rule: Rule, what: &str) {
        let at = self.us(Instant::now());
        self.failures.report(rule, format!("{name} in database {database}, after {at} us: {what}"));
    }

    fn account(&self, database: u32, name: &str) -> Option<MutexGuard<'_, Account>> {
        self.accounts.get(&(database, name.to_owned())).map(|(_, account)| locked(account))
    }

    fn us(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.started).as_micros()).unwrap_or(u64::MAX)
    }

    fn shown(&self, hold: &Hold) -> String {
        format!("{} held from {} to {} us", hold.token, self.us(hold.from), self.us(hold.until))
    }
}

pub fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().expect("no panic")
}
