//! How a lock is acquired, in the task of the caller. If that drops the future, it drops the hold, which withdraws the request.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::Instrument;

use crate::core::{RETRY, random_token};
use crate::error::no_reply;
use crate::events::Reader;
use crate::guard::{Guard, Ownership};
use crate::hold::State;
use crate::queues::{Number, Turn};
use crate::request::{FOREVER, Form};
use crate::server::{Reply, SILENCE, Words};
use crate::{Error, Lock};

/// How late the reply that a wait has timed out may be.
const LATE: Duration = Duration::from_secs(1);
/// A grant that comes later than this part of its lease is extended.
pub(crate) const LATE_PART: u32 = 20;
/// A request without a time limit ends when the server could not be reached for so long.
pub(crate) const MAX_OUTAGE: Duration = Duration::from_secs(60);
/// The shortest pause between two requests, whatever the server replies.
const MIN_PAUSE: Duration = Duration::from_millis(1);

/// Acquires a lock within a time; without one it waits without limit. The turn in the local queue is that of the call.
pub(crate) fn acquire<T>(
    lock: Lock,
    patience: Option<Duration>,
    finish: fn(Result<Guard, Error>) -> T,
) -> impl Future<Output = T> + Send + use<T> {
    let span = tracing::debug_span!("acquire", lock = lock.request.name(), label = lock.label);
    let argument = lock.check();
    let token = random_token(lock.label.as_deref());
    let ownership = Arc::new(Ownership::new(lock, token));
    let (number, latest_release) = (ownership.queue.number(), ownership.queues.latest_release());
    let work = async move {
        if let Err(error) = argument {
            return finish(Err(error));
        }
        let began_at = Instant::now();
        let deadline = began_at + patience.unwrap_or(FOREVER).min(FOREVER);
        let acquisition = Acquisition { ownership, latest_release, began_at, deadline, patience };
        let Ownership { core, hold, .. } = &*acquisition.ownership;
        let granted = core.inside(hold, acquisition.run(number)).await;
        tracing::debug!(granted = matches!(granted, Ok(Some(_))), "finished");
        finish(granted.and_then(|granted| granted.map(Guard::new).ok_or_else(|| Error::Timeout(hold.request.name()))))
    };
    work.instrument(span)
}

/// An acquisition that is under way.
struct Acquisition {
    ownership: Arc<Ownership>,
    /// The latest release of this process that was under way before.
    latest_release: u64,
    began_at: Instant,
    deadline: Instant,
    patience: Option<Duration>,
}

impl Acquisition {
    /// Waits for the turn in the local queue, and then for the lock. Returns the hold, for an owner perhaps an earlier one.
    async fn run(&self, number: Number) -> Result<Option<Arc<Ownership>>, Error> {
        let Ownership { hold, queue, queues, .. } = &*self.ownership;
        if let Some(outer) = queue.held() {
            drop(number);
            return Box::pin(self.enter_again(outer)).await;
        }
        let is_try = self.patience == Some(Duration::ZERO);
        if hold.request.max_waiters.is_some_and(|most| !is_try && queue.waiters() >= most as usize) {
            return Err(Error::QueueFull(hold.request.name()));
        }
        let asked_at = Instant::now();
        let mut turn = if is_try {
            drop(number);
            let _ = timeout_at(self.deadline + LATE, queues.released(self.latest_release)).await;
            None
        } else {
            // If the turn does not come in time, the server is asked once.
            let is_share = matches!(hold.request.form, Form::Share(_));
            timeout_at(self.deadline, queue.turn(number, is_share)).await.ok()
        };
        if let Some(outer) = queue.held() {
            return Box::pin(self.enter_again(outer)).await;
        }
        let is_held = self.wait(asked_at, turn.as_mut()).await?;
        if is_held && hold.request.is_reentrant() {
            queue.set_held(&self.ownership);
        } else if let (false, true, State::Settled(_)) = (is_held, is_try, hold.state()) {
            // The server has refused it, and has nothing to withdraw.
            hold.set_state(State::Idle);
        }
        // The next task of the owner finds the hold.
        drop(turn);
        Ok(is_held.then(|| self.ownership.clone()))
    }

    /// Lets an owner acquire again what it holds. An inner section never cuts the outer one short.
    async fn enter_again(&self, outer: Arc<Ownership>) -> Result<Option<Arc<Ownership>>, Error> {
        outer.extend(self.ownership.hold.term().1.max(outer.hold.term().1)).await?;
        Ok(Some(outer))
    }

    /// Waits for the lock. Returns whether it is held.
    async fn wait(&self, queued_at: Instant, mut turn: Option<&mut Turn<'_>>) -> Result<bool, Error> {
        let Ownership { core, queue, .. } = &*self.ownership;
        let mut pause = MIN_PAUSE;
        let outage = self.patience.unwrap_or(MAX_OUTAGE);
        // A call that has waited for its turn is not the first one to ask for the lock, which is probably held.
        let mut messages = turn.as_ref().is_some_and(|turn| turn.has_waited).then(|| self.messages());
        loop {
            let waits = messages.is_some() || pause > MIN_PAUSE;
            turn.iter_mut().filter(|_| waits).for_each(|turn| turn.set_waiting());
            let asked_at = Instant::now();
            let left = self.deadline.saturating_duration_since(asked_at);
            let can_wait = !left.is_zero() && !core.no_channel.is_on() && !core.no_module.is_on();
            let reader = messages.as_mut().filter(|_| can_wait).map(|messages| (left, messages));
            let result = self.attempt(reader).await;
            if result.is_ok() {
                queue.set_heard();
            }
            match result {
                Ok(is_held) if is_held || left.is_zero() => return Ok(is_held),
                Ok(_) => {
                    if can_wait && messages.is_none() {
                        messages = Some(self.messages());
                        continue;
                    }
                    // What did not wait at the server is asked for with growing pauses.
                    pause = if asked_at.elapsed() > RETRY { MIN_PAUSE } else { RETRY.min(pause * 2) };
                }
                Err(error) if error.may_pass() && !left.is_zero() && queue.silence(queued_at) < outage => {
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

    /// Returns a reader of the messages for the token. It is made before a request that may wait, because the message may come
    /// before the reply.
    fn messages(&self) -> Reader {
        self.ownership.core.server.events.read(self.ownership.hold.token.as_bytes())
    }

    /// Sends a request, which may wait for a message for a time. Returns whether the lock has been granted.
    async fn attempt(&self, mut wait: Option<(Duration, &mut Reader)>) -> Result<bool, Error> {
        if let Some((_, messages)) = &mut wait {
            messages.forget();
        }
        let Ownership { core, hold, .. } = &*self.ownership;
        let (lease, until) = (hold.term().1, self.deadline + LATE);
        let channel = wait.as_ref().and_then(|_| core.channel(&hold.request.key));
        let time = wait.as_ref().map(|(time, _)| *time);
        let command = hold.request.acquire(&hold.token, lease, time.zip(channel.as_deref()));
        let mut at = Instant::now();
        let mut reply = core.request(hold, &command, until).await;
        if reply.as_ref().is_err_and(Error::is_no_channel) {
            let words = Words::new("SSUBSCRIBE").word(channel.unwrap_or_default());
            reply = Box::pin(core.call(hold, &words, until)).await.and(Ok(Reply::Nil));
        }
        let is_granted = match (reply, wait) {
            (Ok(Reply::Nil), _) => false,
            (Ok(Reply::Number(_)), _) if at.elapsed() < lease => true,
            // It waits. The lease counts from the first request, because the message may be for any of them, and late. When most
            // of it has passed, the same request confirms the grant.
            (Ok(Reply::Text(_)), Some((_, messages))) => {
                at = self.began_at;
                let message = timeout_at(until, timeout(SILENCE, messages.next())).await;
                message == Ok(Ok(true)) && at.elapsed() < lease * 4 / 5
            }
            // A lease that ended before the reply is of no use.
            (Ok(_), _) => return Err(Error::new(&hold.request.name(), no_reply())),
            (Err(error), _) if error.is_reply("NOPERM", "channel") => {
                tracing::warn!(%error, "locks poll");
                core.no_channel.note();
                false
            }
            (Err(error), _) => return Err(error),
        };
        if is_granted {
            hold.set_lease(at, lease);
            if at.elapsed() > lease / LATE_PART {
                self.extend_behind();
            }
        }
        Ok(is_granted)
    }

    /// Gives a late grant the whole lease, which its reply sets, while the caller has the lock.
    fn extend_behind(&self) {
        let (core, hold) = (self.ownership.core.clone(), self.ownership.hold.clone());
        self.ownership.core.runtime.spawn(async move {
            if let Err(Error::Lost(_)) = core.renew_lease(&hold).await.map_err(Error::for_holder) {
                hold.lose();
            }
            core.recheck(&hold);
        });
    }
}
