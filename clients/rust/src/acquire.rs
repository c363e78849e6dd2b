//! How a lock is acquired: by a task of its own, which goes on, withdraws or releases whatever becomes of its caller.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::Instrument;

use crate::claim::Claim;
use crate::core::{Core, MAX_BLOCK, RETRY};
use crate::error::no_reply;
use crate::events::{Event, Reader};
use crate::guard::{Guard, Hold};
use crate::redis::Value;
use crate::{Error, Lock};

/// A request is sent again after this time without a message. Less than `lock.rejoin-grace-ms`.
const SILENCE: Duration = Duration::from_secs(5);
/// How late the reply that a wait has timed out may be.
const LATE: Duration = Duration::from_secs(1);
/// Stands for no limit.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// A request without a time limit ends when the server could not be reached for so long.
const MAX_OUTAGE: Duration = Duration::from_secs(60);
/// The shortest pause between two requests, whatever the server replies.
const MIN_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause between two requests where the server cannot notify.
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// Acquires a lock within a time; without one it waits without limit. Returns none if the lock is not free.
pub(crate) async fn acquire(lock: Lock, patience: Option<Duration>) -> Result<Option<Guard>, Error> {
    let span = tracing::debug_span!("acquire", lock = lock.name(), label = lock.label.as_deref());
    let (mut reply, answer) = oneshot::channel();
    let runtime = lock.locks.core.runtime.clone();
    let name = lock.name();
    let task = async move {
        let outcome = tokio::select! {
            biased;
            // The caller is gone. What the other branch has sent is withdrawn as it is dropped.
            () = reply.closed() => return tracing::debug!("cancelled"),
            outcome = within(&lock, patience) => outcome,
        };
        tracing::debug!(granted = matches!(outcome, Ok(Some(_))), "finished");
        // If the caller is gone by now, this drops the guard, which releases the lock.
        let _ = reply.send(outcome);
    };
    runtime.spawn(task.instrument(span));
    answer.await.unwrap_or_else(|_| Err(Error::ended(&name)))
}

async fn within(lock: &Lock, patience: Option<Duration>) -> Result<Option<Guard>, Error> {
    let core = &lock.locks.core;
    let deadline = Instant::now() + patience.unwrap_or(FOREVER).min(FOREVER);
    let queue = core.turns.enter(&lock.request.key, Default::default);
    // Without patience, or if the turn does not come in time, the server is asked once.
    let _turn = timeout_at(deadline, queue.lock()).await;
    if let Some(guard) = Guard::of_owner(lock).await? {
        return Ok(Some(guard));
    }
    let hold = Hold::new(lock);
    let waiting = Waiter::new(core, &hold.claim, deadline).wait(patience.unwrap_or(MAX_OUTAGE));
    let in_time = timeout_at(deadline + LATE, waiting).await;
    let is_held = in_time.unwrap_or_else(|_| Err(Error::new(&lock.name(), no_reply())))?;
    if !is_held && patience == Some(Duration::ZERO) && !hold.claim.has_unanswered() {
        // The server has refused it, and has nothing to withdraw.
        hold.disarm();
    }
    Ok(is_held.then(|| Guard::new(hold)))
}

/// The first task of a local queue, while it waits for the lock.
struct Waiter<'a> {
    core: &'a Core,
    claim: &'a Claim,
    began_at: Instant,
    deadline: Instant,
    messages: Reader,
}

/// The result of one request.
enum Attempt {
    Granted,
    /// Not granted, and the server will not say when it is free.
    Held,
    /// Nothing is known: send the request again.
    Again,
}

impl<'a> Waiter<'a> {
    fn new(core: &'a Core, claim: &'a Claim, deadline: Instant) -> Self {
        // It reads before the first request, because the message may come before the reply.
        let messages = core.server.events.read(claim.token.as_bytes());
        Self { core, claim, began_at: Instant::now(), deadline, messages }
    }

    /// Waits for the lock. Returns whether it is held.
    async fn wait(mut self, max_outage: Duration) -> Result<bool, Error> {
        let (mut heard_at, mut pause) = (self.began_at, MIN_PAUSE);
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            let rest = match self.attempt(left).await {
                Ok(Attempt::Granted) => return Ok(true),
                Ok(Attempt::Held) if left.is_zero() => return Ok(false),
                Ok(attempt) => {
                    heard_at = Instant::now();
                    pause = if matches!(attempt, Attempt::Held) { MAX_PAUSE.min(pause * 2) } else { MIN_PAUSE };
                    // Waiters that began together shall not ask together.
                    pause.mul_f64(0.5 + f64::from(getrandom::u32().unwrap_or_default()) / f64::from(u32::MAX) / 2.0)
                }
                Err(error) if !error.may_pass() || left.is_zero() || heard_at.elapsed() > max_outage => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::debug!(%error, "asks again");
                    RETRY
                }
            };
            sleep(rest.min(left)).await;
        }
    }

    /// Sends one request, and waits for the message that ends its wait. `left` is zero for the last request.
    async fn attempt(&mut self, left: Duration) -> Result<Attempt, Error> {
        let Self { core, claim, .. } = *self;
        let can_notify = core.has_channel.load(Ordering::Relaxed) && !core.has_scripts_only();
        if left.is_zero() || !can_notify {
            return core.take(claim).await.map(|is_held| if is_held { Attempt::Granted } else { Attempt::Held });
        }
        let at = Instant::now();
        let command = claim.wait(left.min(MAX_BLOCK), &core.channel(&claim.request.key));
        let granted_at = match core.request(claim, core.call(claim, &command)).await {
            Err(error) => return self.recover(error).await,
            Ok(Value::Int(_)) => Some(at),
            // The grant may answer an earlier request, and the lease counts from it. The same request confirms an old one.
            Ok(_) => match timeout(SILENCE.min(left + LATE), self.messages.next()).await {
                Ok(Event::Granted) if self.began_at.elapsed() < claim.lease() / 3 => Some(self.began_at),
                _ => None,
            },
        };
        let Some(at) = granted_at else { return Ok(Attempt::Again) };
        claim.set_lease(at, claim.lease());
        Ok(Attempt::Granted)
    }

    /// Does what the error of a request that waits calls for.
    async fn recover(&self, mut error: Error) -> Result<Attempt, Error> {
        if error.is_no_subscriber() {
            match self.core.subscribe(self.claim).await {
                Ok(_) => return Ok(Attempt::Again),
                Err(refusal) => error = refusal,
            }
        }
        if error.is_unknown_command() {
            self.core.use_scripts();
        } else if error.is_about_channel() {
            tracing::warn!(%error, "locks poll");
            self.core.has_channel.store(false, Ordering::Relaxed);
        } else {
            return Err(error);
        }
        Ok(Attempt::Again)
    }
}
