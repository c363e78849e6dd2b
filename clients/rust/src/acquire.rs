//! How a lock is acquired: by a task of its own, which its hold ends when it is dropped.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::Instrument;

use crate::claim::{Claim, FOREVER, Form};
use crate::core::{Core, Queue, RETRY, random_token};
use crate::error::no_reply;
use crate::events::Reader;
use crate::guard::{Guard, Hold};
use crate::redis::{Value, cmd};
use crate::server::SILENCE;
use crate::{Error, Lock};

/// How late the reply that a wait has timed out may be.
const LATE: Duration = Duration::from_secs(1);
/// A request without a time limit ends when the server could not be reached for so long.
pub(crate) const MAX_OUTAGE: Duration = Duration::from_secs(60);
/// The shortest pause between two requests, whatever the server replies.
const MIN_PAUSE: Duration = Duration::from_millis(1);

/// Acquires a lock within a time; without one it waits without limit. Returns none if the lock is not free.
pub(crate) async fn acquire(lock: &Lock, patience: Option<Duration>) -> Result<Option<Guard>, Error> {
    let span = tracing::debug_span!("acquire", lock = lock.request.name(), label = lock.label);
    let hold = Hold::new(lock, random_token(lock.label.as_deref()));
    let (core, claim, queue) = (lock.locks.core.clone(), hold.claim.clone(), hold.queue.clone());
    // It reads before the first request, because the message may come before the reply.
    let messages = core.server.events.read(claim.token.as_bytes());
    let deadline = Instant::now() + patience.unwrap_or(FOREVER).min(FOREVER);
    let mut acquisition = Acquisition { core, claim, messages, deadline, patience };
    let (weak, (reply, answer)) = (Arc::downgrade(&hold), oneshot::channel());
    let task = async move {
        let in_time = timeout_at(deadline + LATE, acquisition.run(weak, &queue)).await;
        let outcome = in_time.unwrap_or_else(|_| Err(Error::new(&acquisition.claim.request.name(), no_reply())));
        tracing::debug!(granted = matches!(outcome, Ok(Some(_))), "finished");
        // Without the caller, this drops the hold, which releases the lock.
        let _ = reply.send(outcome);
    };
    hold.spawn(task.instrument(span));
    Ok(answer.await.unwrap_or_else(|_| Err(Error::ended(&lock.request.name())))?.map(Guard::new))
}

/// What the task of a hold does until the lock is acquired.
struct Acquisition {
    core: Arc<Core>,
    claim: Arc<Claim>,
    messages: Reader,
    deadline: Instant,
    patience: Option<Duration>,
}

impl Acquisition {
    /// Waits for the turn in the local queue, and then for the lock. Returns its hold, for an owner perhaps an earlier one.
    async fn run(&mut self, hold: Weak<Hold>, queue: &Queue) -> Result<Option<Arc<Hold>>, Error> {
        let outer = || queue.held.borrow().upgrade();
        // Without patience, or if the turn does not come in time, the server is asked once. A holder needs no turn.
        let _turn = if outer().is_none() { timeout_at(self.deadline, queue.turn.lock()).await.ok() } else { None };
        if let Some(outer) = outer() {
            // An inner section never cuts the outer one short.
            outer.extend(self.claim.lease().max(outer.claim.lease())).await?;
            return Ok(Some(outer));
        }
        let is_held = self.wait().await?;
        if !is_held && self.patience == Some(Duration::ZERO) && self.claim.unanswered.load(Ordering::SeqCst) == 0 {
            // The server has refused it, and has nothing to withdraw.
            self.claim.is_armed.store(false, Ordering::SeqCst);
        }
        if let (true, Form::Reentrant(_)) = (is_held, &self.claim.request.form) {
            queue.held.send_replace(hold.clone());
        }
        Ok(hold.upgrade().filter(|_| is_held))
    }

    /// Waits for the lock. Returns whether it is held.
    async fn wait(&mut self) -> Result<bool, Error> {
        let began_at = Instant::now();
        let (mut heard_at, mut pause) = (began_at, MIN_PAUSE);
        let outage = self.patience.unwrap_or(MAX_OUTAGE);
        loop {
            let asked_at = Instant::now();
            let left = self.deadline.saturating_duration_since(asked_at);
            let can_wait = !left.is_zero() && !self.core.no_channel.is_on() && !self.core.no_module.is_on();
            match self.attempt(can_wait.then_some(left), began_at).await {
                Ok(is_held) if is_held || left.is_zero() => return Ok(is_held),
                Ok(_) => {
                    heard_at = Instant::now();
                    // What did not wait at the server is asked for with growing pauses.
                    pause = if asked_at.elapsed() > RETRY { MIN_PAUSE } else { RETRY.min(pause * 2) };
                }
                Err(error) if error.may_pass() && !left.is_zero() && heard_at.elapsed() < outage => {
                    tracing::debug!(%error, "asks again");
                    pause = RETRY;
                }
                Err(error) => return Err(error),
            }
            // Waiters that began together shall not ask together.
            let share = f64::from(getrandom::u32().unwrap_or_default()) / f64::from(u32::MAX);
            sleep(pause.mul_f64(0.5 + share / 2.0).min(left)).await;
        }
    }

    /// Sends a request, which may wait for a time; the first one was sent after an instant. Returns whether the lock has
    /// been granted.
    async fn attempt(&mut self, time: Option<Duration>, began_at: Instant) -> Result<bool, Error> {
        let Self { core, claim, messages, .. } = self;
        let prefix = core.server.prefix(&claim.request.key);
        let channel = prefix.map(|prefix| [prefix.as_slice(), core.channel.as_bytes()].concat());
        let command = claim.ask(time.zip(channel.as_deref()));
        let mut at = Instant::now();
        claim.is_armed.store(true, Ordering::SeqCst);
        let mut reply = core.request(claim, &command).await;
        if reply.as_ref().is_err_and(Error::is_no_channel) {
            reply = core.call(claim, cmd("SSUBSCRIBE").arg(channel)).await.and(Ok(Value::Nil));
        }
        let is_granted = match reply {
            Ok(Value::Nil) => false,
            Ok(Value::Int(_)) if at.elapsed() < claim.lease() => true,
            // A lease that ended before the reply is of no use.
            Ok(Value::Int(_)) => return Err(Error::new(&claim.request.name(), no_reply())),
            // It waits. The lease counts from the first request, because the message may be for any of them. The same request
            // confirms a late grant, and gives it the whole lease.
            Ok(_) => {
                at = began_at;
                timeout(SILENCE, messages.next()).await == Ok(true) && at.elapsed() < claim.lease() / 3
            }
            Err(error) if error.is_reply("NOPERM", "channel") => {
                tracing::warn!(%error, "locks poll");
                core.no_channel.note();
                false
            }
            Err(error) => return Err(error),
        };
        if is_granted {
            claim.set_lease(at, claim.lease());
        }
        Ok(is_granted)
    }
}
