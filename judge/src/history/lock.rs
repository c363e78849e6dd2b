//! The history of one lock, as calls of its specification.

use std::collections::BTreeMap;

use super::faults::Faults;
use super::line::{Message, Name, Operation};
use crate::specification::lock::{Call, Form, Reply, Request, Time};

/// A call with its reply. Without one it may have taken effect at any time, or never.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    pub call: Call,
    pub reply: Option<Reply>,
}

/// A fencing token that was drawn.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    pub invoked: Time,
    pub completed: Time,
    pub fence: i64,
}

#[derive(Debug)]
pub struct LockHistory {
    pub name: String,
    /// The names of the tokens.
    pub tokens: Vec<String>,
    /// The calls of each token that has held the lock.
    pub calls: Vec<Vec<Timed>>,
    /// The draws, in parts between which the counter can have been lost.
    pub draws: Vec<Draw>,
    /// The lock is one of a failover: the last grants can be forgotten.
    pub forgets: bool,
}

/// The operations of one token, and the times at which a message has granted it the lock.
#[derive(Default)]
struct Span<'l> {
    operations: Vec<&'l Operation>,
    granted: Vec<Time>,
}

impl LockHistory {
    pub fn new(
        (round, database, lock): &Name,
        operations: &[&Operation],
        messages: &[&Message],
        faults: &Faults,
    ) -> Self {
        let mut spans: BTreeMap<&str, Span<'_>> = BTreeMap::new();
        operations.iter().for_each(|one| spans.entry(&one.token).or_default().operations.push(one));
        messages.iter().for_each(|one| spans.entry(&one.token).or_default().granted.push(one.at));
        let (mut tokens, mut calls) = (Vec::new(), Vec::new());
        for (token, span) in spans {
            let of_token = span.calls(tokens.len(), *round == 0, faults);
            if !of_token.is_empty() {
                tokens.push(token.to_owned());
                calls.push(of_token);
            }
        }
        let draw = |one: &&Operation| {
            let (fence, completed) = (one.fence?, one.completed?);
            let is_lost = faults.loses_counters(one.invoked, completed);
            (!is_lost).then_some(Draw { invoked: one.invoked, completed, fence })
        };
        let draws = operations.iter().filter_map(draw).collect();
        let name = if *round == 0 { format!("{database}/{lock}") } else { format!("round {round}, {lock}") };
        Self { name, tokens, calls, draws, forgets: *round > 0 }
    }
}

impl Span<'_> {
    /// Returns the calls that say something about the holders: none if the token has never held the lock.
    fn calls(&self, token: usize, counts: bool, faults: &Faults) -> Vec<Timed> {
        let may_end = self.operations.iter().filter_map(|one| faults.may_end(one)).min().unwrap_or(Time::MAX);
        let is_counted = counts && !self.operations.iter().any(|one| one.outcome == "unknown");
        let known = self.operations.iter().filter_map(|one| Some((*one, one.completed?)));
        let call = |(one, completed): (&Operation, Time)| {
            let until = faults.until(one, completed).min(may_end);
            let (request, reply) = request_of(one, until, is_counted)?;
            Some(Timed { call: Call { token, invoked: one.invoked, completed, request }, reply: Some(reply) })
        };
        let mut calls: Vec<Timed> = known.filter_map(call).collect();
        calls.extend(self.messages(token, may_end, faults));
        let is_grant = |one: &Timed| matches!(one.call.request, Request::Acquire { .. });
        let first_grant = calls.iter().filter(|one| is_grant(one)).map(|one| one.call.invoked).min();
        let confirmed = calls.iter().filter(|one| one.reply != Some(Reply::NotHeld) && !is_grant(one));
        let first_confirmed = confirmed.map(|one| one.call.completed).min();
        // The token has held the lock before any known grant: a request whose reply, or message, was lost was granted.
        if first_confirmed.is_some_and(|at| first_grant.is_none_or(|first| first > at)) {
            calls.extend(self.unknown(token, may_end, faults));
        }
        // After the last hold may have ended, that the token does not hold the lock is no news. A session gets the lock back
        // later, if grants were suspended when its lease ended.
        let ends = || calls.iter().filter_map(|one| one.call.request.until());
        let (first, last) = (ends().min().unwrap_or_default(), ends().max().unwrap_or_default());
        let has_session = self.operations.iter().any(|one| one.session);
        calls.retain(|one| {
            let is_news = one.call.invoked < last && (one.call.completed < first || !has_session);
            one.reply != Some(Reply::NotHeld) || is_news
        });
        let has_held = calls.iter().any(|one| one.reply != Some(Reply::NotHeld));
        if has_held { calls } else { Vec::new() }
    }

    /// The grants by messages. Each ends a wait, which has begun with the first request at the earliest.
    fn messages(&self, token: usize, may_end: Time, faults: &Faults) -> Vec<Timed> {
        let waits = || self.operations.iter().filter(|one| one.outcome == "waiting" || one.outcome == "unknown");
        let grant = |&completed: &Time| {
            let first = waits().filter(|one| one.invoked <= completed).min_by_key(|one| one.invoked)?;
            let until = waits().map(|one| faults.until(one, completed)).min()?.min(may_end);
            let request = acquire(first, until);
            let call = Call { token, invoked: first.invoked, completed, request };
            Some(Timed { call, reply: Some(Reply::Held(None)) })
        };
        self.granted.iter().filter_map(grant).collect()
    }

    fn unknown(&self, token: usize, may_end: Time, faults: &Faults) -> Vec<Timed> {
        let acquires = self.operations.iter().filter(|one| one.operation == "acquire");
        let unknown = acquires.filter(|one| one.outcome == "unknown" || one.outcome == "waiting");
        let call = |one: &&Operation| {
            let request = acquire(one, faults.until(one, Time::MAX).min(may_end));
            Timed { call: Call { token, invoked: one.invoked, completed: Time::MAX, request }, reply: None }
        };
        unknown.map(call).collect()
    }
}

/// The request and the reply, if the reply says whether the token holds the lock.
fn request_of(one: &Operation, until: Time, is_counted: bool) -> Option<(Request, Reply)> {
    let holds = one.number().filter(|_| is_counted && one.kind.as_deref() == Some("reentrant"));
    match (one.operation.as_str(), one.outcome.as_str()) {
        ("acquire", "granted") => Some((acquire(one, until), Reply::Held(holds))),
        ("extend", "granted") => Some((Request::Extend { until }, Reply::Held(None))),
        ("fence", "granted") => Some((Request::Fence, Reply::Held(None))),
        ("release", "released") => Some((Request::Release { hold: one.hold }, Reply::Left(one.number()?))),
        _ if one.says_not_held() => Some((Request::Fence, Reply::NotHeld)),
        _ => None,
    }
}

fn acquire(one: &Operation, until: Time) -> Request {
    let form = if one.kind.as_deref() == Some("share") { Form::Share } else { Form::Exclusive };
    Request::Acquire { form, limit: one.limit, hold: one.hold, until }
}
