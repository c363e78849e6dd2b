//! The requests of one connection that have no reply yet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use support::Reply;

use super::History;
use super::operation::{Operation, block_of};
use crate::evidence::Since;

#[derive(Clone)]
pub struct Request {
    pub line: String,
    pub operation: Option<Operation>,
    pub since: Since,
    /// How long it and those before it in the same write can block the connection; `None` without an end.
    pub block: Option<Duration>,
}

/// The time that a request may take beyond its BLOCK on a server that does not stall.
const SLACK: Duration = Duration::from_millis(500);

/// A connection, as the history needs it.
#[derive(Clone, Copy)]
pub struct Endpoint {
    pub server: u16,
    pub database: u32,
    /// The CLIENT ID, or a number of this program.
    pub connection: i64,
    /// No bad network is between.
    pub is_direct: bool,
}

/// Dropping it completes the requests that are left without a reply.
pub struct Requests {
    history: Arc<History>,
    pub endpoint: Endpoint,
    open: VecDeque<Request>,
    last_reply: Instant,
    /// The command of a transaction, between its QUEUED, or the error that it is not, and EXEC.
    queued: Option<Request>,
    /// After CLIENT REPLY OFF.
    is_silent: bool,
}

impl Requests {
    pub fn new(history: &Arc<History>, endpoint: Endpoint) -> Self {
        let (history, open) = (Arc::clone(history), VecDeque::new());
        Self { history, endpoint, open, last_reply: Instant::now(), queued: None, is_silent: false }
    }

    pub fn sent<'l>(&mut self, lines: impl Iterator<Item = &'l str>, since: Since) {
        let (mut is_skipped, mut block) = (false, Some(Duration::ZERO));
        for line in lines {
            block = block.zip(block_of(line)).map(|(before, own)| before + own);
            let operation = Operation::of(line);
            let request = Request { line: line.to_owned(), operation, since, block };
            self.history.sent(&self.endpoint, &request);
            self.is_silent = (self.is_silent || line == "CLIENT REPLY OFF") && line != "CLIENT REPLY ON";
            // The replies to these are messages.
            let is_subscription = line.starts_with("SSUBSCRIBE") || line.starts_with("SUNSUBSCRIBE");
            if self.is_silent || is_skipped {
                self.complete(&request, None);
            } else if line != "CLIENT REPLY SKIP" && !is_subscription {
                self.open.push_back(request);
            }
            is_skipped = line == "CLIENT REPLY SKIP";
        }
    }

    /// Takes in a reply. Returns the request that it belongs to with its own reply: for a transaction of one command,
    /// what EXEC replies for that.
    pub fn answered(&mut self, reply: Reply) -> (Option<Request>, Reply) {
        if matches!(reply, Reply::Push(_) | Reply::Closed) {
            return (None, reply);
        }
        self.last_reply = Instant::now();
        self.check_late();
        let Some(request) = self.open.pop_front() else { return (None, reply) };
        if self.open.front().is_some_and(|next| next.line == "EXEC") {
            self.queued = Some(request);
            return (None, reply);
        }
        let (request, reply) = match (request.line.as_str(), self.queued.take(), reply) {
            ("EXEC", Some(queued), Reply::List(mut replies)) if replies.len() == 1 => (queued, replies.remove(0)),
            ("EXEC", Some(queued), reply) => (queued, reply),
            (_, queued, reply) => {
                self.queued = queued;
                (request, reply)
            }
        };
        self.complete(&request, Some(&reply));
        (Some(request), reply)
    }

    pub fn oldest(&self) -> Option<&Request> {
        self.open.front()
    }

    pub fn check_late(&self) {
        let Some(request) = self.open.front() else { return };
        let evidence = &self.history.evidence;
        let is_checked = evidence.checks_replies && self.endpoint.is_direct && request.line.starts_with("LOCK.");
        let limit = request.block.filter(|_| is_checked).map(|block| block + SLACK);
        if let Some(late) = limit.and_then(|limit| evidence.stalls.late(request.since, limit)) {
            self.history.failures.report("every request is answered", format!("{}: {late}", request.line));
        }
    }

    fn complete(&self, request: &Request, reply: Option<&Reply>) {
        self.history.completed(&self.endpoint, request, reply);
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.queued.iter().chain(&self.open).for_each(|request| self.complete(request, None));
        self.history.closed(&self.endpoint, self.last_reply);
    }
}

#[test]
fn replies_belong_to_requests_in_order() {
    let answered = |lines: &[&str], replies: Vec<Reply>| {
        let history = History::new(Instant::now(), 0, &[], Default::default(), Default::default());
        let endpoint = Endpoint { server: 1, database: 0, connection: 1, is_direct: true };
        let mut requests = Requests::new(&history, endpoint);
        requests.sent(lines.iter().copied(), crate::evidence::since_now());
        let answered = replies.into_iter().map(|reply| requests.answered(reply));
        answered.filter_map(|(request, reply)| Some(format!("{} {reply}", request?.line))).collect::<Vec<_>>()
    };
    let [pong, ok, queued] = ["PONG", "OK", "QUEUED"].map(Reply::text);
    let (push, one) = (Reply::Push(Vec::new()), Reply::Int(1));
    let of = answered(&["LOCK.ACQUIRE a t1", "SSUBSCRIBE c", "PING"], vec![push, one.clone(), pong.clone()]);
    assert_eq!(of, ["LOCK.ACQUIRE a t1 1", "PING PONG"]);
    let of = answered(&["CLIENT REPLY SKIP", "LOCK.ACQUIRE a t1", "PING"], vec![pong]);
    assert_eq!(of, ["PING PONG"]);
    let of = answered(&["CLIENT REPLY OFF", "LOCK.ACQUIRE a t1", "CLIENT REPLY ON"], vec![ok.clone()]);
    assert_eq!(of, ["CLIENT REPLY ON OK"]);
    let of = answered(&["MULTI", "LOCK.ACQUIRE a t1", "EXEC"], vec![ok, queued, Reply::List(vec![one])]);
    assert_eq!(of, ["MULTI OK", "LOCK.ACQUIRE a t1 1"], "EXEC replies for its command");
}
