//! One timer for each client, exact to microseconds: the polling protocols are not to be slowed by a coarse clock.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// The kernel's timer is set to the earliest. Time stands still while the engine is paused, so that nothing falls due
/// meanwhile.
pub struct Timers {
    descriptor: OwnedFd,
    /// What the kernel's timer is set to.
    armed: Option<Duration>,
    due: BTreeSet<(Duration, usize)>,
    due_of: Vec<Option<Duration>>,
    /// When this clock was zero.
    epoch: Instant,
    paused_at: Duration,
}

impl Timers {
    pub fn new(clients: usize, registry: &Registry, token: Token) -> Self {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = timerfd_create(TimerfdClockId::Monotonic, flags).expect("a timer");
        registry.register(&mut SourceFd(&descriptor.as_raw_fd()), token, Interest::READABLE).expect("a timer to watch");
        Self {
            descriptor,
            armed: None,
            due: BTreeSet::new(),
            due_of: vec![None; clients],
            epoch: Instant::now(),
            paused_at: Duration::ZERO,
        }
    }

    pub fn pause(&mut self) {
        self.paused_at = self.epoch.elapsed();
    }

    pub fn resume(&mut self) {
        self.epoch = Instant::now() - self.paused_at;
        self.armed = None;
    }

    /// Sets the client's timer, in place of the one it has.
    pub fn set(&mut self, client: usize, span: Duration) {
        self.cancel(client);
        let due = self.epoch.elapsed() + span;
        self.due.insert((due, client));
        if let Some(slot) = self.due_of.get_mut(client) {
            *slot = Some(due);
        }
    }

    pub fn cancel(&mut self, client: usize) {
        if let Some(due) = self.due_of.get_mut(client).and_then(Option::take) {
            self.due.remove(&(due, client));
        }
    }

    /// Appends the clients whose timers are due, and forgets these timers.
    pub fn take_due(&mut self, clients: &mut Vec<usize>) {
        if self.due.is_empty() {
            return;
        }
        let now = self.epoch.elapsed();
        while let Some(&(due, client)) = self.due.first().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, client));
            if let Some(slot) = self.due_of.get_mut(client) {
                *slot = None;
            }
            clients.push(client);
        }
    }

    /// Sees to it that a poll ends when the earliest is due.
    pub fn arm(&mut self) {
        let Some(&(due, _)) = self.due.first() else { return };
        if self.armed == Some(due) {
            return;
        }
        self.armed = Some(due);
        // Zero would switch the timer off.
        let span = due.saturating_sub(self.epoch.elapsed()).max(Duration::from_nanos(1));
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec::try_from(span).expect("a span that a timer takes"),
        };
        timerfd_settime(&self.descriptor, TimerfdTimerFlags::empty(), &once).expect("a timer that can be set");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::Poll;
    use std::thread::sleep;

    const SOON: Duration = Duration::from_millis(2);
    const NEVER: Duration = Duration::from_secs(3600);

    fn timers() -> (Poll, Timers) {
        let poll = Poll::new().expect("an event queue");
        let timers = Timers::new(3, poll.registry(), Token(0));
        (poll, timers)
    }

    fn due(timers: &mut Timers) -> Vec<usize> {
        let mut due = Vec::new();
        timers.take_due(&mut due);
        due
    }

    #[test]
    fn the_earliest_comes_first_and_each_once() {
        let (_poll, mut timers) = timers();
        timers.set(0, SOON);
        timers.set(1, Duration::ZERO);
        timers.set(2, NEVER);
        sleep(SOON);
        assert_eq!(due(&mut timers), [1, 0]);
        assert!(due(&mut timers).is_empty());
    }

    #[test]
    fn a_new_time_takes_the_place_of_the_old() {
        let (_poll, mut timers) = timers();
        timers.set(0, Duration::ZERO);
        timers.set(0, NEVER);
        timers.set(1, Duration::ZERO);
        timers.cancel(1);
        assert!(due(&mut timers).is_empty());
    }

    #[test]
    fn nothing_falls_due_in_a_pause() {
        let (_poll, mut timers) = timers();
        timers.set(0, 50 * SOON);
        timers.pause();
        sleep(60 * SOON);
        timers.resume();
        assert!(due(&mut timers).is_empty());
        sleep(50 * SOON);
        assert_eq!(due(&mut timers), [0]);
    }

    #[test]
    fn a_poll_ends_when_one_is_due() {
        let (mut poll, mut timers) = timers();
        let mut events = mio::Events::with_capacity(1);
        timers.set(0, SOON);
        timers.arm();
        poll.poll(&mut events, Some(NEVER)).expect("an event queue");
        assert_eq!(due(&mut timers), [0]);
    }
}
