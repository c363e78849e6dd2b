//! The local queues of a name: one waiter of each is in the queue of the server.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::guard::Ownership;
use crate::registry::Registry;

/// The requests that may be under way together: shares that stand next to each other.
const CAPACITY: u32 = 64;

/// How often, and for how long, a call waits for earlier ones whose futures have not been polled.
const MAX_PAUSES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(1);

/// The local queues of a name, and its releases that are under way.
#[derive(Default)]
pub(crate) struct LocalQueues {
    /// The queues by owner: an owner does not wait behind one that waits for it.
    pub(crate) by_owner: Registry<Option<String>, Queue>,
    releases: Releases,
}

/// The queue of the requests of an owner, or of all without an owner; and what the owner holds.
#[derive(Default)]
pub(crate) struct Queue {
    line: Mutex<Line>,
    held: Mutex<Weak<Ownership>>,
}

/// Requests in the order of their calls.
struct Line {
    free: u32,
    /// How many have their turn, and wait at the server or poll it.
    at_server: usize,
    /// The numbers of calls whose futures have not been polled.
    new: Vec<u64>,
    next: u64,
    waiting: BTreeMap<u64, (u32, Waker)>,
    /// The latest reply of the server to one of them.
    heard_at: Option<Instant>,
}

impl Default for Line {
    fn default() -> Self {
        Self { free: CAPACITY, at_server: 0, new: Vec::new(), next: 0, waiting: BTreeMap::new(), heard_at: None }
    }
}

impl Line {
    /// Wakes the first one if there is space for it.
    fn wake(&self) {
        if let Some((_, (need, waker))) = self.waiting.first_key_value()
            && *need <= self.free
        {
            waker.wake_by_ref();
        }
    }
}

impl Queue {
    /// Takes a number, which orders the turns.
    pub(crate) fn number(self: &Arc<Self>) -> Number {
        let mut line = self.line();
        line.next += 1;
        let number = line.next;
        line.new.push(number);
        Number(self.clone(), number)
    }

    /// Returns how many wait for the lock, or for their turn.
    pub(crate) fn waiters(&self) -> usize {
        let line = self.line();
        line.at_server + line.waiting.len()
    }

    /// Waits for the turn of a number. A share has it together with others.
    pub(crate) async fn turn(&self, number: Number, is_share: bool) -> Turn<'_> {
        let (need, number) = (if is_share { 1 } else { CAPACITY }, number.begin().await);
        let mut turn = Turn { queue: self, number, need, has_come: false, has_waited: false, is_waiting: false };
        poll_fn(|context| {
            let mut line = self.line();
            if need <= line.free && line.waiting.range(..number).next().is_none() {
                line.waiting.remove(&number);
                line.free -= need;
                line.wake();
                turn.has_come = true;
                return Poll::Ready(());
            }
            line.waiting.insert(number, (need, context.waker().clone()));
            turn.has_waited = true;
            Poll::Pending
        })
        .await;
        turn
    }

    /// Notes a reply of the server.
    pub(crate) fn set_heard(&self) {
        self.line().heard_at = Some(Instant::now());
    }

    /// Returns for how long a call and those before it have had no reply, so that an outage ends all of them together.
    pub(crate) fn silence(&self, called_at: Instant) -> Duration {
        self.line().heard_at.map_or(called_at, |heard_at| heard_at.max(called_at)).elapsed()
    }

    /// Returns what the owner holds.
    pub(crate) fn held(&self) -> Option<Arc<Ownership>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    pub(crate) fn set_held(&self, ownership: &Arc<Ownership>) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(ownership);
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        // No code panics between two changes.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A number in a local queue.
pub(crate) struct Number(Arc<Queue>, u64);

impl Number {
    /// Lets the tasks of earlier calls begin, if they do so in a moment.
    async fn begin(self) -> u64 {
        let Self(queue, number) = &self;
        queue.line().new.retain(|new| new != number);
        for _ in 0..MAX_PAUSES {
            if queue.line().new.iter().all(|new| new > number) {
                break;
            }
            sleep(PAUSE).await;
        }
        *number
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        self.0.line().new.retain(|number| *number != self.1);
    }
}

/// A turn in a local queue, or the wait for it.
pub(crate) struct Turn<'a> {
    queue: &'a Queue,
    number: u64,
    need: u32,
    has_come: bool,
    /// Whether others had the turn before.
    pub(crate) has_waited: bool,
    is_waiting: bool,
}

impl Turn<'_> {
    /// Notes that a request in this turn waits at the server, or polls it.
    pub(crate) fn set_waiting(&mut self) {
        let before = std::mem::replace(&mut self.is_waiting, true);
        self.queue.line().at_server += usize::from(!before);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut line = self.queue.line();
        if self.has_come {
            line.free += self.need;
            line.at_server -= usize::from(self.is_waiting);
        } else {
            line.waiting.remove(&self.number);
        }
        line.wake();
    }
}

/// The releases of a name that are under way, by number.
#[derive(Default)]
struct Releases {
    under_way: Mutex<(u64, Vec<u64>)>,
    /// Notifies of the end of each.
    end: Notify,
}

/// A release that is under way.
pub(crate) struct Releasing {
    queues: Arc<LocalQueues>,
    number: u64,
}

impl LocalQueues {
    pub(crate) fn begin_release(self: &Arc<Self>) -> Releasing {
        let mut under_way = self.releases();
        under_way.0 += 1;
        let number = under_way.0;
        under_way.1.push(number);
        Releasing { queues: self.clone(), number }
    }

    /// Returns the number of the latest release.
    pub(crate) fn latest_release(&self) -> u64 {
        self.releases().0
    }

    /// Waits until the releases up to a number are not under way.
    pub(crate) async fn released(&self, latest: u64) {
        loop {
            let end = self.releases.end.notified();
            if self.releases().1.iter().all(|number| *number > latest) {
                return;
            }
            end.await;
        }
    }

    fn releases(&self) -> MutexGuard<'_, (u64, Vec<u64>)> {
        self.releases.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        self.queues.releases().1.retain(|number| *number != self.number);
        self.queues.releases.end.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use tokio::time::Instant;

    use super::Queue;

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn turns_follow_the_calls() {
        let queue = Arc::new(Queue::default());
        let turn = poll(pin!(queue.turn(queue.number(), false))).expect("a turn");
        let numbers: [_; 3] = std::array::from_fn(|_| queue.number());
        let [mut first, mut second, mut third] = numbers.map(|number| Box::pin(queue.turn(number, false)));
        for waiting in [&mut first, &mut second, &mut third] {
            assert!(poll(waiting.as_mut()).is_none());
        }
        drop(turn);
        assert!(poll(third.as_mut()).is_none() && poll(second.as_mut()).is_none());
        drop(first);
        assert!(poll(third.as_mut()).is_none());
        assert!(poll(second.as_mut()).is_some());
        assert!(poll(third.as_mut()).is_some());
    }

    #[test]
    fn call_that_is_dropped_holds_up_none() {
        let queue = Arc::new(Queue::default());
        drop((queue.number(), queue.turn(queue.number(), false)));
        assert!(poll(pin!(queue.turn(queue.number(), false))).is_some());
    }

    #[test]
    fn silence_begins_with_call_or_latest_reply() {
        let (queue, minute) = (Queue::default(), Duration::from_secs(60));
        let called_at = Instant::now().checked_sub(minute).expect("a minute before");
        assert!(queue.silence(called_at) >= minute && queue.silence(Instant::now()) < minute);
        queue.set_heard();
        assert!(queue.silence(called_at) < minute);
    }

    #[test]
    fn shares_have_turns_together() {
        let queue = Arc::new(Queue::default());
        let turns: Vec<_> = (0..64).map(|_| poll(pin!(queue.turn(queue.number(), true))).expect("a turn")).collect();
        let mut next = Box::pin(queue.turn(queue.number(), true));
        let mut alone = Box::pin(queue.turn(queue.number(), false));
        assert!(poll(next.as_mut()).is_none() && poll(alone.as_mut()).is_none());
        drop(turns);
        let turn = poll(next.as_mut()).expect("a turn");
        assert!(poll(alone.as_mut()).is_none(), "a share has the turn");
        drop(turn);
        assert!(poll(alone.as_mut()).is_some());
    }
}
