//! The requests of a history.

use super::{Crowd, Dice, Operator, Taste};
use crate::request::{Form, Identity, Request, Take, Verb, is_plain};
use crate::step::{CHANNELS, CLIENTS, LOCKS, Step, Way};

impl Dice {
    /// Returns a request of a client.
    pub(super) fn ask(&mut self) -> Step {
        let extend = if matches!(self.operator, Operator::Strict) { 4 } else { 1 };
        let verb: fn(&mut Self) -> Verb = self.weighed(&[
            (20, Self::take),
            (3, |dice| Verb::Release { hold: dice.hold(), lease: dice.percent(20).then(|| dice.lease()) }),
            (extend, |dice| Verb::Extend { lease: dice.lease(), add: dice.percent(50) }),
            (1, |_| Verb::Fence),
            (1, |dice| {
                let (waiters, queues) = (|count| Verb::Waiters { count }, |count| Verb::Queues { count });
                let [first, some] = [Some(1), Some(3)];
                dice.one_of(&[Verb::Info, waiters(None), waiters(first), waiters(some), queues(None), queues(first)])
            }),
            (1, |dice| Verb::Nonsense(dice.number() as u8)),
        ]);
        let (client, lock) = (self.client(), self.lock());
        let way = self.weighed(&[(24, Way::Plain), (1, Way::Transaction), (1, Way::Script)]);
        // Mostly the client's own name. Sometimes another client's, as when a request is sent twice.
        let identity = Identity::from(if self.percent(12) { (client + 1) % CLIENTS } else { client });
        let identity = if matches!(self.crowd, Crowd::Alike) { identity % 3 } else { identity };
        let request = Request { lock, identity, verb: verb(self) };
        let way = if is_plain(identity) || way != Way::Script { way } else { Way::Plain };
        Step::Ask { client, request, way }
    }

    /// Returns two requests of one client, perhaps for one lock.
    pub(super) fn together(&mut self) -> Step {
        let (client, first) = (self.client(), self.lock());
        let identity = Identity::from(client);
        let lease = Some(self.within(30, 400));
        let second = if self.percent(70) { first } else { self.lock() };
        let notify = Some(first).filter(|_| self.percent(30));
        let block = notify.map(|_| 0);
        let form = if self.percent(20) { Form::Share } else { Form::Mutex };
        let take = Take::plain(form, lease, block, notify);
        let release = Verb::Release { hold: None, lease: None };
        let verbs = [Verb::Take(take), release, Verb::Fence, Verb::Extend { lease: 50, add: false }];
        let (one, other) = (self.one_of(&verbs), self.one_of(&verbs));
        let request = |lock, verb| Request { lock, identity, verb };
        Step::Together { client, requests: [request(first, one), request(second, other)] }
    }

    /// Returns a crowd: more requests that wait for one lock than there are clients.
    pub(super) fn crowd_step(&mut self) -> Step {
        let (client, lock) = (self.client(), self.within(0, LOCKS.into()) as u8);
        Step::Crowd { client, lock, count: self.within(8, 30) as u8, lease: self.within(1, 400) }
    }

    /// Returns a request for a lock.
    fn take(&mut self) -> Verb {
        let form = self.form();
        let (how, [lease, block]) = (self.number(), [400, 2600].map(|end| (self.number(), end)));
        // The quotients of the numbers decide about rarer options.
        let [(lease, for_grace), (block, for_line)] = [lease, block].map(|(number, end)| (number % end, number / end));
        let (lease, block) = (i64::from(lease), i64::from(block));
        let session = how % 4 == 3 || matches!(self.crowd, Crowd::Alike) && how % 4 > 0;
        let number = i64::from(how / 4 % 14);
        let (strict, hold, limit) = match form {
            Form::Mutex => (how / 4 % 10 == 9, None, None),
            Form::Reentrant => (false, Some(number).filter(|hold| (1..4).contains(hold)), None),
            // Often with a limit, and a small one.
            Form::Share => {
                (false, None, Some(number - 2).filter(|&number| number > 0).map(|number| 1 + number % 7 % 3))
            }
        };
        let is_strict = matches!(self.operator, Operator::Strict);
        // No lease if the number is small, and a longer one for a session.
        let lease = match (lease, session) {
            (398.., _) => Some(1000),
            // It is longer than a stall.
            (340.., _) if is_strict => Some(6000),
            (lease, true) => Some(100 + lease),
            (lease, false) => Some(lease).filter(|&lease| lease >= 30),
        };
        // A third of the requests waits without an end, a few do not wait.
        let block = match block {
            0..100 => None,
            100..1000 => Some(0),
            ms => Some(ms - 999),
        };
        // One in five is notified by a message, and two in five where many have the same token. Some of these have no lease, or do not wait.
        let by_message = how / 560;
        let least = if matches!(self.crowd, Crowd::Alike) { 3 } else { 4 };
        let notify = Some((by_message / 5) as u8 % CHANNELS).filter(|_| by_message % 5 >= least);
        // Half of the sessions have a grace period. One in eight of the waiters limits the length of the queue.
        let grace =
            lease.filter(|_| session && for_grace % 2 == 1).map(|lease| 1 + i64::from(for_grace / 2) * 37 % lease);
        let max_waiters = block.filter(|_| for_line % 8 == 7).map(|_| 1 + i64::from(for_line / 8));
        Verb::Take(Take { form, lease, block, strict, hold, limit, session, grace, max_waiters, notify })
    }

    /// Returns the form of a lock, mostly the common one of the history.
    fn form(&mut self) -> Form {
        match self.taste {
            Taste::Exclusive => self.weighed(&[(14, Form::Mutex), (6, Form::Reentrant), (1, Form::Share)]),
            Taste::Shares => self.weighed(&[(14, Form::Share), (5, Form::Mutex), (1, Form::Reentrant)]),
        }
    }

    /// Returns a short lease, rarely one of a second.
    fn lease(&mut self) -> i64 {
        match self.within(1, 410) {
            400.. => 1000,
            ms => ms,
        }
    }

    /// Returns the number of a hold, mostly none.
    fn hold(&mut self) -> Option<i64> {
        Some(self.within(0, 14)).filter(|hold| (1..4).contains(hold))
    }
}
