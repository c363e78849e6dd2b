//! Chooses random histories, and shrinks a failing one.
//!
//! Numbers determine a step, and smaller numbers give a simpler step. So proptest keeps little data for each step. With
//! one strategy for each kind of step it would take longer to choose a history than to simulate it.

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

/// The number of bytes of a step.
pub const STEP_LEN: usize = size_of::<Throw>();

/// Returns histories of up to `steps` steps.
pub fn histories(steps: usize) -> impl Strategy<Value = History> {
    let numbers = || uniform10(0u16..);
    (numbers(), vec(numbers(), steps / 4..=steps)).prop_map(|(queue_entry, steps)| history_of(queue_entry, steps))
}

/// Returns the history of any bytes. The first [`STEP_LEN`] bytes determine the servers and the settings. Each later
/// [`STEP_LEN`] bytes determine a step.
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

/// Returns a history that shrinks only by the removal of steps.
pub fn parts_of(history: &History) -> impl Strategy<Value = History> + use<> {
    let (kind, setting, batch) = (history.kind, history.setting, history.batch);
    let steps: Vec<_> = history.steps.iter().cloned().map(|step| weighted(0.999_999, Just(step))).collect();
    steps.prop_map(move |steps| History { kind, setting, batch, steps: steps.into_iter().flatten().collect() })
}

/// The clients of a history.
#[derive(Clone, Copy, Debug)]
enum Crowd {
    /// All clients. Most use their own name.
    Many,
    /// A few clients, so that there is often no work.
    Few,
    /// Many clients with three names, so that requests take the places of others.
    Alike,
}

/// The most frequent form of requests in a history.
#[derive(Clone, Copy, Debug)]
enum Taste {
    /// An exclusive lock.
    Exclusive,
    /// A share.
    Shares,
}

/// The settings of the recovery period in a history.
#[derive(Clone, Copy, Debug)]
enum Operator {
    /// Grants are never suspended.
    Lenient,
    /// Grants are suspended until former leases have ended. There are more faults.
    Strict,
}

/// Random numbers that determine a step. After the last one, all numbers are zero.
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

    /// Returns a number from `least` to `end - 1`.
    fn within(&mut self, least: i64, end: i64) -> i64 {
        least + i64::from(self.number()) % (end - least)
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.number() as usize % choices.len()]
    }

    /// Returns one of several choices, each as often as its weight says. Small numbers give the first choice.
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

    /// Returns `true` in `percent` of a hundred cases. Small numbers give `false`.
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

    /// Returns a lock. Most clients want the same lock.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use redis_lock::command::words_of_commands;

    use super::*;

    #[test]
    fn histories_have_every_option_of_every_command() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut sent = BTreeSet::new();
        for _ in 0..200 {
            let bytes: Vec<u8> = (0..100 * STEP_LEN).map(|_| rng.u8(..)).collect();
            for step in history_from(&bytes).steps {
                let Step::Ask { request, .. } = step else { continue };
                let words = request.words();
                let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
                sent.extend(words[1..].iter().map(|word| (words[0].to_lowercase(), word.clone())));
            }
        }
        for (command, word) in words_of_commands() {
            assert!(sent.contains(&(command.to_owned(), word.to_owned())), "{command} never has {word}");
        }
    }
}
