//! Redisson's RPermitExpirableSemaphore: the number of permits left, a Sorted Set of the ends of those taken, and a channel
//! on which the release tells everybody who waits.
//!
//! Each client is a process of its own here, with a connection for its subscription.

use std::collections::VecDeque;
use std::time::Duration;

use super::native::PERMITS;
use super::permit_scripts::{REDISSON_PERMIT_ACQUIRE, REDISSON_PERMIT_RELEASE};
use super::polled_permit::now_ms;
use super::redisson::PUBLISH;
use super::scripts::Script;
use super::subscription::Subscription;
use super::token::Tokens;
use super::{Lease, Party, Progress, Protocol, Step, unexpected};
use crate::engine::{Line, Reply, Wire};

pub struct RedissonPermit;

impl Protocol for RedissonPermit {
    fn name(&self) -> &'static str {
        "Lua sorted set + pub/sub (Redisson)"
    }

    fn scripts(&self) -> &'static [Script] {
        &[REDISSON_PERMIT_ACQUIRE, REDISSON_PERMIT_RELEASE]
    }

    fn lines(&self) -> usize {
        2
    }

    fn party(&self, number: usize, lock: &str, lease: Lease) -> Box<dyn Party> {
        Box::new(Client {
            first: number == 0,
            acquire: REDISSON_PERMIT_ACQUIRE.sha1(),
            release: REDISSON_PERMIT_RELEASE.sha1(),
            left: lock.to_owned(),
            ends: format!("{{{lock}}}:timeout"),
            subscription: Subscription::new(format!("redisson_sc:{{{lock}}}")),
            lease,
            tokens: Tokens::new(number),
            asked: VecDeque::new(),
        })
    }
}

/// What a reply is the answer to.
enum Asked {
    /// The number of permits is set, as `trySetPermits` does.
    Permits,
    Permit(Step),
}

struct Client {
    /// Sets the number of permits before its first request.
    first: bool,
    acquire: String,
    release: String,
    left: String,
    ends: String,
    subscription: Subscription,
    lease: Lease,
    tokens: Tokens,
    asked: VecDeque<Asked>,
}

impl Client {
    fn attempt(&mut self, wire: &mut Wire<'_>) {
        let (script, left, ends) = (self.acquire.as_bytes(), self.left.as_bytes(), self.ends.as_bytes());
        let now = now_ms();
        let (end, now) = ((now + u128::from(self.lease)).to_string(), now.to_string());
        let (channel, token) = (self.subscription.channel(), self.tokens.present());
        let publish = PUBLISH.as_bytes();
        wire.ask(&[b"EVALSHA", script, b"3", left, ends, channel, end.as_bytes(), now.as_bytes(), token, publish]);
        self.asked.push_back(Asked::Permit(Step::Acquire));
    }

    /// `first_end` is that of the lease that ends first, if there is any.
    fn refused(&mut self, first_end: Option<u128>, wire: &mut Wire<'_>) {
        let until = |end: u128| u64::try_from(end.saturating_sub(now_ms())).unwrap_or(u64::MAX);
        if self.subscription.refused(first_end.map(|end| Duration::from_millis(until(end))), wire) {
            self.attempt(wire);
        }
    }
}

impl Party for Client {
    fn acquire(&mut self, wire: &mut Wire<'_>) {
        if std::mem::take(&mut self.first) {
            wire.tell_on(Line::Main, &[b"SET", self.left.as_bytes(), PERMITS.to_string().as_bytes()]);
            self.asked.push_back(Asked::Permits);
        }
        self.tokens.draw();
        self.subscription.try_without();
        self.attempt(wire);
    }

    fn release(&mut self, wire: &mut Wire<'_>) {
        let (script, left, ends) = (self.release.as_bytes(), self.left.as_bytes(), self.ends.as_bytes());
        let (channel, token, now) = (self.subscription.channel(), self.tokens.present(), now_ms().to_string());
        wire.ask(&[b"EVALSHA", script, b"3", left, ends, channel, token, now.as_bytes(), PUBLISH.as_bytes()]);
        self.asked.push_back(Asked::Permit(Step::Release));
    }

    fn on_reply(&mut self, line: Line, reply: Reply, wire: &mut Wire<'_>) -> Progress {
        if line == Line::Channel {
            if self.subscription.heard(&reply, wire) {
                self.attempt(wire);
            }
            return Progress::Pending;
        }
        match (self.asked.pop_front(), reply) {
            (Some(Asked::Permits), Reply::SimpleString(_)) => Progress::Pending,
            (Some(Asked::Permit(Step::Acquire)), Reply::BulkString(text)) if text == b"OK" => {
                self.subscription.granted(wire);
                Progress::Granted
            }
            (Some(Asked::Permit(Step::Acquire)), Reply::BulkString(text)) => {
                let first_end = text.strip_prefix(b":").and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
                self.refused(Some(first_end.expect("the end of a lease")), wire);
                Progress::Pending
            }
            (Some(Asked::Permit(Step::Acquire)), Reply::Null) => {
                self.refused(None, wire);
                Progress::Pending
            }
            (Some(Asked::Permit(Step::Release)), Reply::Integer(1)) => Progress::Released,
            (_, reply) => unexpected(&reply),
        }
    }

    fn on_alarm(&mut self, wire: &mut Wire<'_>) {
        if self.subscription.woken() {
            self.attempt(wire);
        }
    }
}
