//! How histories are chosen, and made shorter when one has failed.
//!
//! A step is made of a few numbers, and of smaller numbers a simpler step. So the library has little to keep for each, which
//! matters: it would be slower to choose a history by one strategy for each kind of step than to simulate it.

use proptest::array::uniform10;
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use redis_lock::server::{ServerKind, WriteFence};

use crate::request::{Channel, Form, Identity, Request, Take, Verb, is_plain};
use crate::step::{
    BATCH, CHANNELS, CLIENTS, Change, Counter, ExternalCommand, History, Knob, LOCKS, Score, Setting, Slot, SlotFate,
    Step, Victim, Way,
};

/// The numbers of a step.
type Throw = [u16; 10];

/// How many bytes a step is made of.
pub const STEP_LEN: usize = size_of::<Throw>();

/// Histories of up to so many steps.
pub fn histories(steps: usize) -> impl Strategy<Value = History> {
    let numbers = || uniform10(0u16..);
    (numbers(), vec(numbers(), steps / 4..=steps)).prop_map(|(queue_entry, steps)| history_of(queue_entry, steps))
}

/// The history that any bytes are: [`STEP_LEN`] of them are a step, and the first of them where it takes place.
pub fn history_from(bytes: &[u8]) -> History {
    let mut throws = bytes.chunks(STEP_LEN).map(|bytes| {
        let mut throw = Throw::default();
        for (number, pair) in throw.iter_mut().zip(bytes.chunks(2)) {
            *number = pair.iter().fold(0, |number, &byte| number << 8 | u16::from(byte));
        }
        throw
    });
    let queue_entry = throws.next().unwrap_or_default();
    history_of(queue_entry, throws)
}

fn history_of(queue_entry: Throw, steps: impl IntoIterator<Item = Throw>) -> History {
    let mut dice = Dice::new(queue_entry, Crowd::Many, Taste::Exclusive, Operator::Lenient);
    let kind = dice.one_of(&ServerKind::ALL);
    let setting = dice.weighed(&[(3, Setting::Alone), (2, Setting::Replicated), (2, Setting::Cluster)]);
    let crowd = dice.weighed(&[(5, Crowd::Many), (1, Crowd::Few), (4, Crowd::Alike)]);
    let taste = dice.weighed(&[(3, Taste::Exclusive), (2, Taste::Shares)]);
    let listeners = if dice.percent(60) { CHANNELS } else { 0 };
    let subscribe = |channel| Step::Subscribe { client: CLIENTS - 1 - channel, channel };
    let operator = dice.weighed(&[(3, Operator::Lenient), (1, Operator::Strict)]);
    let settings = dice.settings(operator);
    let wakes = dice.percent(25).then_some(Step::Configure { knob: Knob::WakeForeign, value: 1 });
    let batch = dice.weighed(&[(3, BATCH), (1, 1), (1, 2)]);
    let steps = steps.into_iter().map(|numbers| Dice::new(numbers, crowd, taste, operator).step());
    let steps = settings.into_iter().chain(wakes).chain((0..listeners).map(subscribe)).chain(steps);
    History { kind, setting, batch, steps: steps.collect() }
}

/// A history that gets shorter by any of its steps, and no other way.
pub fn parts_of(history: &History) -> impl Strategy<Value = History> + use<> {
    let (kind, setting, batch) = (history.kind, history.setting, history.batch);
    let steps: Vec<_> = history.steps.iter().cloned().map(|step| weighted(0.999_999, Just(step))).collect();
    steps.prop_map(move |steps| History { kind, setting, batch, steps: steps.into_iter().flatten().collect() })
}

/// Who takes part in a history.
#[derive(Clone, Copy, Debug)]
enum Crowd {
    /// All clients, each mostly by a name of its own.
    Many,
    /// A few, so that there is often nothing to do.
    Few,
    /// Many who share three names, so that a place has many copies of a request.
    Alike,
}

/// What most ask for in a history.
#[derive(Clone, Copy, Debug)]
enum Taste {
    /// A lock that is theirs alone.
    Exclusive,
    /// A share.
    Shares,
}

/// What the operator minds.
#[derive(Clone, Copy, Debug)]
enum Operator {
    /// No lock is held back.
    Lenient,
    /// Nobody is granted a lock before what was forgotten has ended; and there are more failures.
    Strict,
}

/// Numbers that were thrown, and what is read off them. When there are no more, they are zero.
struct Dice {
    numbers: <Throw as IntoIterator>::IntoIter,
    crowd: Crowd,
    taste: Taste,
    operator: Operator,
}

impl Dice {
    fn new(numbers: Throw, crowd: Crowd, taste: Taste, operator: Operator) -> Self {
        Self { numbers: numbers.into_iter(), crowd, taste, operator }
    }

    fn number(&mut self) -> u32 {
        u32::from(self.numbers.next().unwrap_or_default())
    }

    /// A number from `least` to just below `end`.
    fn within(&mut self, least: i64, end: i64) -> i64 {
        least + i64::from(self.number()) % (end - least)
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.number() as usize % choices.len()]
    }

    /// One of several, each as often as its weight says; of small numbers comes the first.
    fn weighed<T: Copy>(&mut self, choices: &[(u32, T)]) -> T {
        let total: u32 = choices.iter().map(|(weight, _)| weight).sum();
        let mut left = self.number() % total;
        for &(weight, choice) in choices {
            if left < weight {
                return choice;
            }
            left -= weight;
        }
        choices[0].1
    }

    /// Yes in so many of a hundred cases; no for small numbers.
    fn percent(&mut self, percent: u32) -> bool {
        self.number() % 100 >= 100 - percent
    }

    fn client(&mut self) -> Slot {
        let clients = match self.crowd {
            Crowd::Many => CLIENTS,
            Crowd::Few => 3,
            Crowd::Alike => 9,
        };
        self.within(0, clients.into()) as Slot
    }

    fn victim(&mut self) -> Victim {
        if self.percent(50) { Victim::First } else { Victim::Client(self.client()) }
    }

    fn channel(&mut self) -> Channel {
        self.within(0, CHANNELS.into()) as Channel
    }

    /// Most clients want the same lock.
    fn lock(&mut self) -> u8 {
        self.weighed(&[(10, 0), (1, 1), (1, LOCKS - 1)])
    }

    fn step(&mut self) -> Step {
        let environment = if matches!(self.operator, Operator::Strict) { 7 } else { 4 };
        let kind: fn(&mut Self) -> Step = self.weighed(&[
            (84, Self::ask as _),
            (9, |_| Step::Turn),
            (9, |dice| Step::Pass(dice.within(1, 60) as u16)),
            (3, |dice| Step::Pass(dice.within(100, 1500) as u16)),
            (8, |dice| Step::External { client: dice.client(), command: dice.meddling() }),
            (3, |dice| Step::HangUp(dice.client())),
            (2, Self::crowd_step),
            (1, Self::together),
            (9, Self::disturbance),
            (environment, Self::environment),
        ]);
        kind(self)
    }

    fn ask(&mut self) -> Step {
        let extend = if matches!(self.operator, Operator::Strict) { 4 } else { 1 };
        let verb: fn(&mut Self) -> Verb = self.weighed(&[
            (20, Self::take),
            (3, |dice| Verb::Release { hold: dice.hold(), lease: dice.percent(20).then(|| dice.within(1, 400)) }),
            (extend, |dice| Verb::Extend { lease: dice.within(1, 400), add: dice.percent(50) }),
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
        // Mostly a client's own name; sometimes another's, as when a request was sent twice.
        let identity = Identity::from(if self.percent(12) { (client + 1) % CLIENTS } else { client });
        let identity = if matches!(self.crowd, Crowd::Alike) { identity % 3 } else { identity };
        let request = Request { lock, identity, verb: verb(self) };
        let way = if is_plain(identity) || way != Way::Script { way } else { Way::Plain };
        Step::Ask { client, request, way }
    }

    /// Two requests of one client, which may be about one lock.
    fn together(&mut self) -> Step {
        let (client, first) = (self.client(), self.lock());
        let identity = Identity::from(client);
        let lease = Some(self.within(30, 400));
        let second = if self.percent(70) { first } else { self.lock() };
        let notify = Some(first).filter(|_| self.percent(30));
        let block = notify.map(|_| 0);
        let form = if self.percent(20) { Form::Share } else { Form::Mutex };
        let take = Take { form, lease, block, strict: false, hold: None, limit: None, session: false, notify };
        let release = Verb::Release { hold: None, lease: None };
        let verbs = [Verb::Take(take), release, Verb::Fence, Verb::Extend { lease: 50, add: false }];
        let (one, other) = (self.one_of(&verbs), self.one_of(&verbs));
        let request = |lock, verb| Request { lock, identity, verb };
        Step::Together { client, requests: [request(first, one), request(second, other)] }
    }

    /// More requests that wait for one lock than there are clients.
    fn crowd_step(&mut self) -> Step {
        let (client, lock) = (self.client(), self.within(0, LOCKS.into()) as u8);
        Step::Crowd { client, lock, count: self.within(8, 30) as u8, lease: self.within(1, 400) }
    }

    /// What is set before anybody is there.
    fn settings(&mut self, operator: Operator) -> Vec<Step> {
        let set = |knob, value| Step::Configure { knob, value };
        match operator {
            Operator::Lenient => {
                let longest = self.weighed(&[(8, 0), (1, 1000), (1, 250)]);
                if longest > 0 { vec![set(Knob::MaxLeaseMs, longest)] } else { Vec::new() }
            }
            Operator::Strict => {
                let lag = self.weighed(&[(12, Some(0)), (6, Some(1)), (1, Some(10)), (1, None)]);
                let lag = lag.map_or(Step::HideSettings, |lag| set(Knob::MaxLag, lag));
                // Often it is no shorter than the longest lease, as it should be.
                let (recovery, longest) = self.one_of(&[(300, 250), (1200, 1000), (300, 0), (1200, 0), (60, 0)]);
                vec![lag, set(Knob::RecoveryMs, recovery), set(Knob::MaxLeaseMs, longest)]
            }
        }
    }

    fn knob(&mut self) -> Step {
        let is_strict = matches!(self.operator, Operator::Strict);
        if is_strict && self.percent(60) { self.recovery_knob() } else { self.common_knob() }
    }

    fn recovery_knob(&mut self) -> Step {
        let (knob, value) = self.one_of(&[
            (Knob::RecoveryMs, 0),
            (Knob::RecoveryMs, 100),
            (Knob::RecoveryMs, 500),
            (Knob::RecoveryMs, 1500),
            (Knob::MaxLeaseMs, 0),
            (Knob::MaxLeaseMs, 200),
            (Knob::MaxLeaseMs, 1000),
            (Knob::MaxLag, 0),
            (Knob::MaxLag, 1),
        ]);
        Step::Configure { knob, value }
    }

    fn common_knob(&mut self) -> Step {
        let (knob, value) = self.one_of(&[
            (Knob::MaxWaiters, 100_000),
            (Knob::MaxWaiters, 4),
            (Knob::MaxBlockMs, 0),
            (Knob::MaxBlockMs, 50),
            (Knob::RejoinGraceMs, 200),
            (Knob::RejoinGraceMs, 0),
            (Knob::MaxSessions, 100_000),
            (Knob::MaxSessions, 2),
        ]);
        Step::Configure { knob, value }
    }

    fn hold(&mut self) -> Option<i64> {
        Some(self.within(0, 14)).filter(|hold| (1..4).contains(hold))
    }

    fn form(&mut self) -> Form {
        match self.taste {
            Taste::Exclusive => self.weighed(&[(14, Form::Mutex), (6, Form::Reentrant), (1, Form::Share)]),
            Taste::Shares => self.weighed(&[(14, Form::Share), (5, Form::Mutex), (1, Form::Reentrant)]),
        }
    }

    fn take(&mut self) -> Verb {
        let form = self.form();
        let (how, lease, block) = (self.number(), self.within(0, 400), self.within(0, 2600));
        let session = how % 4 == 3 || matches!(self.crowd, Crowd::Alike) && how % 4 > 0;
        let number = i64::from(how / 4 % 14);
        let (strict, hold, limit) = match form {
            Form::Mutex => (how / 4 % 10 == 9, None, None),
            Form::Reentrant => (false, Some(number).filter(|hold| (1..4).contains(hold)), None),
            // Often a limit, and a small one.
            Form::Share => {
                (false, None, Some(number - 2).filter(|&number| number > 0).map(|number| 1 + number % 7 % 3))
            }
        };
        let is_strict = matches!(self.operator, Operator::Strict);
        // No lease where the number is small, and a longer one for a session.
        let lease = match (lease, session) {
            (398.., _) => Some(1000),
            // It outlives a standstill.
            (340.., _) if is_strict => Some(6000),
            (lease, true) => Some(100 + lease),
            (lease, false) => Some(lease).filter(|&lease| lease >= 30),
        };
        // A third waits for ever, a few not at all.
        let block = match block {
            0..100 => None,
            100..1000 => Some(0),
            ms => Some(ms - 999),
        };
        // One in five is told by message, and of copies two; some of these have no lease, or do not wait.
        let by_message = how / 560;
        let least = if matches!(self.crowd, Crowd::Alike) { 3 } else { 4 };
        let notify = Some((by_message / 5) as u8 % CHANNELS).filter(|_| by_message % 5 >= least);
        Verb::Take(Take { form, lease, block, strict, hold, limit, session, notify })
    }

    fn meddling(&mut self) -> ExternalCommand {
        let kind: fn(&mut Self) -> ExternalCommand = self.weighed(&[
            (6, |dice| ExternalCommand::Delete(dice.lock())),
            (1, |dice| ExternalCommand::Unlink(dice.lock())),
            (1, |dice| ExternalCommand::GetDel(dice.lock())),
            (1, |dice| ExternalCommand::TakeOut { lock: dice.lock(), identity: Identity::from(dice.client()) }),
            (1, |dice| ExternalCommand::SetKeep { lock: dice.lock(), identity: dice.stranger() }),
            (1, |dice| ExternalCommand::Restore {
                lock: dice.lock(),
                identity: dice.stranger(),
                lease: dice.within(0, 200) as u16,
            }),
            (1, |dice| ExternalCommand::SetCounter {
                lock: dice.lock(),
                value: match dice.within(0, 6) {
                    0 => Counter::Text,
                    1 => Counter::Ahead,
                    2 => Counter::AtItsEnd,
                    3 => Counter::BehindItsEnd,
                    _ => Counter::Expiring(dice.within(1, 300) as u16),
                },
            }),
            (3, |dice| ExternalCommand::Set {
                lock: dice.lock(),
                identity: dice.stranger(),
                lease: dice.percent(70).then(|| dice.within(1, 200) as u16),
            }),
            (1, |dice| ExternalCommand::SetHash {
                lock: dice.lock(),
                identity: dice.stranger(),
                holds: dice.within(0, 3) as u8,
            }),
            (1, |dice| ExternalCommand::RemoveShare { lock: dice.lock(), identity: Identity::from(dice.client()) }),
            (1, |dice| ExternalCommand::PopShare(dice.lock())),
            (1, |dice| ExternalCommand::AddShare {
                lock: dice.lock(),
                identity: if dice.percent(30) { Identity::from(dice.client()) } else { dice.stranger() },
                score: if dice.percent(30) { Score::Never } else { Score::In(dice.within(-20, 300) as i16) },
            }),
            (1, |dice| ExternalCommand::Push(dice.lock())),
            (3, |dice| ExternalCommand::Expire { lock: dice.lock(), ms: dice.within(-5, 150) as i16 }),
            (1, |dice| ExternalCommand::Persist(dice.lock())),
            (2, |dice| ExternalCommand::Rename(dice.lock(), dice.lock())),
            (1, |dice| ExternalCommand::Copy(dice.lock(), dice.lock())),
            (1, |dice| ExternalCommand::Move(dice.lock(), dice.within(0, 2) as u8)),
            (1, |_| ExternalCommand::FlushDb),
            (1, |_| ExternalCommand::FlushAll),
            (1, |_| ExternalCommand::SwapDb),
            (1, |_| ExternalCommand::Reload),
            (2, |_| ExternalCommand::DeleteAll),
        ]);
        kind(self)
    }

    /// A name that no client has.
    fn stranger(&mut self) -> Identity {
        Identity::from(CLIENTS) + self.within(0, 3) as Identity
    }

    fn disturbance(&mut self) -> Step {
        let kind: fn(&mut Self) -> Step = self.weighed(&[
            (4, |dice| Step::Kill { client: dice.client(), victim: dice.victim() }),
            (4, |dice| Step::Unblock { client: dice.client(), victim: dice.victim(), with_error: dice.percent(50) }),
            (2, |dice| Step::Quit(dice.client())),
            (1, |dice| Step::CutOff { first: dice.client(), count: dice.within(2, 9) as u8 }),
            (1, |dice| Step::Subscribe { client: dice.client(), channel: dice.channel() }),
            (1, |dice| Step::Unsubscribe { client: dice.client(), channel: dice.channel() }),
            (1, |dice| Step::Select { client: dice.client(), db: dice.within(0, 2) as u8 }),
            (3, |dice| Step::Expire(dice.within(1, 4) as u8)),
        ]);
        kind(self)
    }

    fn environment(&mut self) -> Step {
        let kind: fn(&mut Self) -> Step = self.weighed(&[
            (3, |dice| Step::Stall {
                ms: dice.within(1, 3000) as u16,
                change: dice.weighed(&[(2, Change::Nothing), (1, Change::NoReplicas), (1, Change::Replaced)]),
            }),
            (1, |dice| Step::SetClock(dice.within(-300, 300) as i16)),
            (3, |dice| Step::Pause(dice.within(1, 300) as u16)),
            (3, |dice| {
                let fences = [(3, None), (1, Some(WriteFence::NoReplicas)), (1, Some(WriteFence::Disk))];
                Step::Fence(dice.weighed(&fences))
            }),
            (3, |dice| Step::Replicate(dice.within(1, 20) as u8)),
            (2, |dice| Step::FailOver { planned: dice.percent(50) }),
            (1, |dice| Step::Restart { has_log: !dice.percent(20) }),
            (2, Self::knob),
            (2, |dice| Step::Evict(dice.lock())),
            (1, |dice| Step::Demote(dice.within(1, 300) as u16)),
            (5, |dice| Step::Slot {
                lock: dice.lock(),
                fate: dice.weighed(&[(3, SlotFate::Returns), (4, SlotFate::Leaves), (1, SlotFate::Migrates)]),
            }),
            (1, |dice| Step::ClusterDown(dice.percent(50))),
        ]);
        kind(self)
    }
}
