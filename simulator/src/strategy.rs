//! How histories are chosen, and made shorter when one has failed.
//!
//! A step is made of a few numbers, and of smaller numbers a simpler step. So the library has little to keep for each, which
//! matters: it would be slower to choose a history by one strategy for each kind of step than to simulate it.

mod environment;
mod external_commands;
mod requests;

use proptest::array::uniform10;
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use redis_lock::server::ServerKind;

use crate::request::Channel;
use crate::step::{BATCH, CHANNELS, CLIENTS, History, Knob, LOCKS, Setting, Slot, Step, Victim};

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
            (8, |dice| Step::External { client: dice.client(), command: dice.external_command() }),
            (3, |dice| Step::HangUp(dice.client())),
            (2, Self::crowd_step),
            (1, Self::together),
            (9, Self::disturbance),
            (environment, Self::environment),
        ]);
        kind(self)
    }
}
