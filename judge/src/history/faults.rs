//! The faults and settings of a run that bear on holds: what can end a hold before its lease ends.

use std::collections::HashMap;

use super::line::{Closed, Line, Operation};

/// How long a command without a known reply can still have its effect, in microseconds.
const LATE: u64 = 20_000_000;

/// Servers count leases in milliseconds, so one may end by as much earlier than in this time.
const ROUNDING: u64 = 1000;

/// A span of time, in microseconds since the start of the run.
type Span = (u64, u64);

/// The time at which a setting was sent, and its value.
type Setting = (u64, u64);

#[derive(Debug, Default)]
pub struct Faults {
    /// Spans in which all holds can end: FLUSHALL, and steps of the wall clock.
    ends: Vec<Span>,
    /// The values of `lock.max-lease-ms`, from the time at which they were sent.
    limits: Vec<Setting>,
    /// The spans in which the sessions of a connection have ended. RESET ends them, too, and the connection stays.
    closed: HashMap<(u32, u16, i64), Vec<Span>>,
}

impl Faults {
    pub fn of(lines: &[Line]) -> Self {
        let mut faults = Self::default();
        // When the last request with a reply was sent. The reply may be read after the server has closed the connection.
        let mut sent = HashMap::new();
        for line in lines {
            match line {
                Line::Operation(one) if one.completed.is_some() => {
                    sent.insert((one.round, one.server, one.connection), one.invoked);
                }
                Line::Closed(Closed { round, since, at, closed, server }) => {
                    let connection = (*round, *server, *closed);
                    let since = sent.get(&connection).map_or(*since, |sent| *since.min(sent));
                    faults.closed.entry(connection).or_default().push((since, *at));
                }
                Line::Fault { at, fault } => faults.take_in(*at, fault),
                _ => {}
            }
        }
        faults
    }

    fn take_in(&mut self, at: u64, fault: &str) {
        let ends = ["the reply to FLUSHALL is OK", "the clock has been set"];
        if fault == "FLUSHALL" || fault.starts_with("the clock is set") {
            self.ends.push((at, at + LATE));
        } else if let (true, Some(last)) = (ends.contains(&fault), self.ends.last_mut()) {
            last.1 = at;
        }
        if let Some(ms) = fault.strip_prefix("CONFIG SET lock.max-lease-ms ").and_then(|ms| ms.parse().ok()) {
            self.limits.push((at, ms));
        }
    }

    /// Returns from when on a hold may have ended that this request has begun or set a lease for.
    pub fn until(&self, operation: &Operation, completed: u64) -> u64 {
        let ms = self.cut(operation.lease_ms.unwrap_or(u64::MAX), operation.invoked, completed);
        let lease = (ms < u64::MAX).then(|| operation.invoked + ms.saturating_mul(1000).saturating_sub(ROUNDING));
        let during = self.ends.iter().filter(|(_, end)| *end >= operation.invoked);
        let by_fault = during.map(|(begin, _)| (*begin).max(operation.invoked)).min();
        lease.into_iter().chain(by_fault).min().unwrap_or(u64::MAX)
    }

    /// Returns from when on the hold may have ended that an operation can have ended.
    pub fn may_end(&self, operation: &Operation) -> Option<u64> {
        match (operation.operation.as_str(), operation.outcome.as_str()) {
            ("release", "unknown") => Some(operation.invoked),
            ("extend", "unknown") => Some(self.until(operation, u64::MAX)),
            ("acquire", outcome) if operation.session && outcome != "refused" => {
                let closed = self.closed.get(&(operation.round, operation.server, operation.connection))?;
                closed.iter().filter(|(_, at)| *at >= operation.invoked).map(|(since, _)| *since).min()
            }
            _ => None,
        }
    }

    /// Cuts a lease to the limits in force during a request. A request above the limit is refused, but one that waits
    /// when the limit is lowered gets a shorter lease.
    fn cut(&self, ms: u64, invoked: u64, completed: u64) -> u64 {
        let (before, after): (Vec<Setting>, Vec<Setting>) =
            self.limits.iter().copied().partition(|(at, _)| *at < invoked);
        let during: Vec<_> = after.into_iter().filter(|(at, _)| *at <= completed).collect();
        let limits = before.last().into_iter().chain(&during).map(|(_, limit)| *limit);
        limits.filter(|limit| *limit > 0).fold(ms, u64::min)
    }

    /// Whether a counter of fencing tokens can have been lost during this span.
    pub fn loses_counters(&self, begin: u64, end: u64) -> bool {
        self.ends.iter().any(|(from, to)| *from <= end && begin <= *to)
    }
}
