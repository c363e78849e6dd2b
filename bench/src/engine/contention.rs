//! Clients that are all after one lock: each acquires, holds, releases, and comes again.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::{Action, Event, Orders, Workload};
use crate::statistics::{record, spans};

/// When a client that has released comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return {
    /// Once it has read that its release was done.
    AtOnce,
    /// Together with its release, in the same write.
    InOneWrite,
    /// Once the next one holds the lock, so that whoever gets it has waited for it.
    BehindTheNext,
}

pub struct Contention {
    hold: Duration,
    comes_back: Return,
    /// How often each client got the lock.
    pub taken: Vec<u64>,
    /// How often it went to another client than the one before.
    pub hand_overs: u64,
    /// From each release, as it is sent, to the reading of the next grant.
    pub waking: Histogram<u64>,
    enough: u64,
    total: u64,
    holder: Option<usize>,
    last: Option<usize>,
    released_at: Option<Instant>,
    /// Has released, and comes back when the next one holds the lock.
    away: Option<usize>,
}

impl Contention {
    pub fn new(clients: usize, hold: Duration, comes_back: Return) -> Self {
        Self {
            hold,
            comes_back,
            taken: vec![0; clients],
            hand_overs: 0,
            waking: spans(),
            enough: u64::MAX,
            total: 0,
            holder: None,
            last: None,
            released_at: None,
            away: None,
        }
    }

    /// Counts anew, and is done after so many acquisitions.
    pub fn count_to(&mut self, acquisitions: u64) {
        self.taken.fill(0);
        self.hand_overs = 0;
        self.total = 0;
        self.enough = acquisitions;
        self.waking.clear();
        self.released_at = None;
    }

    /// Counts anew.
    pub fn count(&mut self) {
        self.count_to(u64::MAX);
    }

    fn on_grant(&mut self, client: usize, orders: &mut Orders) {
        if let Some(released_at) = self.released_at.take() {
            record(&mut self.waking, released_at.elapsed());
        }
        self.taken[client] += 1;
        self.total += 1;
        if self.last.replace(client) != Some(client) {
            self.hand_overs += 1;
        }
        self.holder = Some(client);
        if let Some(away) = self.away.take() {
            orders.give(away, Action::Acquire);
        }
        if self.hold.is_zero() {
            self.give_up(client, orders);
        } else {
            orders.give(client, Action::Rest(self.hold));
        }
    }

    fn give_up(&mut self, client: usize, orders: &mut Orders) {
        self.holder = None;
        self.released_at = Some(Instant::now());
        orders.give(client, Action::Release);
        if self.comes_back == Return::InOneWrite {
            orders.give(client, Action::Acquire);
        }
    }

    fn on_release(&mut self, client: usize, orders: &mut Orders) {
        match self.comes_back {
            Return::AtOnce => orders.give(client, Action::Acquire),
            Return::InOneWrite => {}
            Return::BehindTheNext if self.holder.is_some() => orders.give(client, Action::Acquire),
            Return::BehindTheNext => self.away = Some(client),
        }
    }
}

impl Workload for Contention {
    fn on(&mut self, client: usize, event: Event, orders: &mut Orders) {
        match event {
            Event::Granted => self.on_grant(client, orders),
            Event::Rested => self.give_up(client, orders),
            Event::Released => self.on_release(client, orders),
            Event::Cycled => {}
        }
    }

    fn is_done(&self) -> bool {
        self.total >= self.enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders_after(contention: &mut Contention, client: usize, event: Event) -> Vec<(usize, Action)> {
        let mut orders = Orders::default();
        contention.on(client, event, &mut orders);
        orders.given().to_vec()
    }

    #[test]
    fn a_holder_without_work_releases_and_returns() {
        let mut contention = Contention::new(2, Duration::ZERO, Return::AtOnce);
        assert_eq!(orders_after(&mut contention, 0, Event::Granted), [(0, Action::Release)]);
        assert_eq!(orders_after(&mut contention, 0, Event::Released), [(0, Action::Acquire)]);
    }

    #[test]
    fn release_and_request_can_go_together() {
        let mut contention = Contention::new(2, Duration::ZERO, Return::InOneWrite);
        let together = [(0, Action::Release), (0, Action::Acquire)];
        assert_eq!(orders_after(&mut contention, 0, Event::Granted), together);
        assert_eq!(orders_after(&mut contention, 0, Event::Released), []);
    }

    #[test]
    fn who_returns_behind_the_next_finds_the_lock_held() {
        let hold = Duration::from_millis(1);
        let mut contention = Contention::new(2, hold, Return::BehindTheNext);
        assert_eq!(orders_after(&mut contention, 0, Event::Granted), [(0, Action::Rest(hold))]);
        assert_eq!(orders_after(&mut contention, 0, Event::Rested), [(0, Action::Release)]);
        // The answer to the release comes before the next grant, or after it.
        assert_eq!(orders_after(&mut contention, 0, Event::Released), []);
        let both = [(0, Action::Acquire), (1, Action::Rest(hold))];
        assert_eq!(orders_after(&mut contention, 1, Event::Granted), both);
        assert_eq!(orders_after(&mut contention, 1, Event::Rested), [(1, Action::Release)]);
        assert_eq!(orders_after(&mut contention, 0, Event::Granted), [(0, Action::Rest(hold))]);
        assert_eq!(orders_after(&mut contention, 1, Event::Released), [(1, Action::Acquire)]);
    }

    #[test]
    fn only_another_client_makes_it_a_hand_over() {
        let mut contention = Contention::new(2, Duration::ZERO, Return::AtOnce);
        contention.count_to(3);
        for client in [0, 0, 1] {
            assert!(!contention.is_done());
            orders_after(&mut contention, client, Event::Granted);
        }
        assert!(contention.is_done());
        assert_eq!((contention.hand_overs, contention.taken), (2, vec![2, 1]));
    }
}
