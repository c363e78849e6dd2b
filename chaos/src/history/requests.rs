//! The requests of one connection that have no reply yet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use support::Reply;

use super::History;
use crate::evidence::starved;

#[derive(Clone)]
pub struct Request {
    pub line: String,
    pub sent: Instant,
    /// The time for which the sending thread had waited for a processor until then.
    pub starved: Duration,
    pub(super) counters_lost: u64,
}

/// Dropping it completes the requests that are left without a reply.
pub struct Requests {
    history: Arc<History>,
    server: u16,
    pub database: u32,
    pub connection: i64,
    open: VecDeque<Request>,
    last_reply: Instant,
    /// The command of a transaction, between its QUEUED and EXEC.
    queued: Option<Request>,
    /// After CLIENT REPLY OFF.
    is_silent: bool,
}

impl Requests {
    pub fn new(history: &Arc<History>, server: u16, database: u32) -> Self {
        let history = Arc::clone(history);
        let (open, last_reply) = (VecDeque::new(), Instant::now());
        Self { history, server, database, connection: 0, open, last_reply, queued: None, is_silent: false }
    }

    /// Notes requests that leave in one write.
    pub fn sent<'l>(&mut self, lines: impl Iterator<Item = &'l str>, sent: Instant) {
        let (starved, counters_lost) = (starved(), self.history.counters_lost.load(Ordering::SeqCst));
        let mut is_skipped = false;
        for line in lines {
            let request = Request { line: line.to_owned(), sent, starved, counters_lost };
            self.history.sent(self.database, self.connection, &request);
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
        let Some(request) = self.open.pop_front() else { return (None, reply) };
        if reply == "QUEUED" {
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

    /// The request that is the next to be answered.
    pub fn oldest(&self) -> Option<&Request> {
        self.open.front()
    }

    fn complete(&self, request: &Request, reply: Option<&Reply>) {
        self.history.completed(self.server, self.database, self.connection, request, reply);
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.queued.iter().chain(&self.open).for_each(|request| self.complete(request, None));
        self.history.closed(self.server, self.connection, self.last_reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(lines: &[&str]) -> Requests {
        let history = History::new(Instant::now(), 0, [].into_iter(), None);
        let mut requests = Requests::new(&history, 1, 0);
        requests.sent(lines.iter().copied(), Instant::now());
        requests
    }

    fn answered(requests: &mut Requests, reply: Reply) -> String {
        requests.answered(reply).0.map_or(String::new(), |request| request.line)
    }

    #[test]
    fn replies_belong_to_requests_in_order() {
        let mut requests = sent(&["LOCK.ACQUIRE a t1", "SSUBSCRIBE c", "PING"]);
        assert_eq!(answered(&mut requests, Reply::Push(Vec::new())), "");
        assert_eq!(answered(&mut requests, Reply::Int(1)), "LOCK.ACQUIRE a t1");
        assert_eq!(answered(&mut requests, Reply::text("PONG")), "PING");
    }

    #[test]
    fn silent_requests_have_no_reply() {
        let mut requests = sent(&["CLIENT REPLY SKIP", "LOCK.ACQUIRE a t1", "PING"]);
        assert_eq!(answered(&mut requests, Reply::text("PONG")), "PING");
        let mut requests = sent(&["CLIENT REPLY OFF", "LOCK.ACQUIRE a t1", "CLIENT REPLY ON"]);
        assert_eq!(answered(&mut requests, Reply::text("OK")), "CLIENT REPLY ON");
    }

    #[test]
    fn reply_of_exec_belongs_to_its_command() {
        let mut requests = sent(&["MULTI", "LOCK.ACQUIRE a t1", "EXEC"]);
        assert_eq!(answered(&mut requests, Reply::text("OK")), "MULTI");
        assert_eq!(answered(&mut requests, Reply::text("QUEUED")), "");
        let (request, reply) = requests.answered(Reply::List(vec![Reply::Int(1)]));
        assert_eq!((request.map(|request| request.line), reply), (Some("LOCK.ACQUIRE a t1".to_owned()), Reply::Int(1)));
    }
}
