//! redis-semaphore: a Sorted Set of the tokens and the times at which they were added, tried again and again while there
//! are as many as permits.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::native::PERMITS;
use super::permit_scripts::REDIS_SEMAPHORE_ACQUIRE;
use super::scripts::Script;
use super::token::Tokens;
use super::{Lease, Party, Progress, Protocol, Step, unexpected};
use crate::engine::{Line, Reply, Wire};

/// The package's default.
const PAUSE: Duration = Duration::from_millis(10);

pub struct PolledPermit;

impl Protocol for PolledPermit {
    fn name(&self) -> &'static str {
        "Lua sorted set, poll 10 ms (redis-semaphore)"
    }

    fn scripts(&self) -> &'static [Script] {
        &[REDIS_SEMAPHORE_ACQUIRE]
    }

    fn party(&self, number: usize, lock: &str, lease: Lease) -> Box<dyn Party> {
        Box::new(Client {
            script: REDIS_SEMAPHORE_ACQUIRE.sha1(),
            key: format!("semaphore:{lock}"),
            permits: PERMITS.to_string(),
            lease: lease.to_string(),
            tokens: Tokens::new(number),
            asked: VecDeque::new(),
        })
    }
}

struct Client {
    script: String,
    key: String,
    permits: String,
    lease: String,
    tokens: Tokens,
    asked: VecDeque<Step>,
}

impl Client {
    fn attempt(&mut self, wire: &mut Wire<'_>) {
        let (script, key, permits) = (self.script.as_bytes(), self.key.as_bytes(), self.permits.as_bytes());
        let (token, lease, now) = (self.tokens.present(), self.lease.as_bytes(), now_ms().to_string());
        wire.ask(&[b"EVALSHA", script, b"1", key, permits, token, lease, now.as_bytes()]);
        self.asked.push_back(Step::Acquire);
    }
}

/// The client's time, by which redis-semaphore counts.
pub(super) fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that is set").as_millis()
}

impl Party for Client {
    fn acquire(&mut self, wire: &mut Wire<'_>) {
        self.tokens.draw();
        self.attempt(wire);
    }

    fn release(&mut self, wire: &mut Wire<'_>) {
        wire.ask(&[b"ZREM", self.key.as_bytes(), self.tokens.present()]);
        self.asked.push_back(Step::Release);
    }

    fn on_reply(&mut self, _line: Line, reply: Reply, wire: &mut Wire<'_>) -> Progress {
        match (self.asked.pop_front(), reply) {
            (Some(Step::Acquire), Reply::Integer(1)) => Progress::Granted,
            (Some(Step::Acquire), Reply::Integer(0)) => {
                wire.wake_after(PAUSE);
                Progress::Pending
            }
            (Some(Step::Release), Reply::Integer(1)) => Progress::Released,
            (_, reply) => unexpected(&reply),
        }
    }

    fn on_alarm(&mut self, wire: &mut Wire<'_>) {
        self.attempt(wire);
    }
}
