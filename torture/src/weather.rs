//! When the server was held up: by a fault of ours, or by a machine that is busy. Promises about time are checked
//! against the time that was left for them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// After a stall of a second the module waits for about another before it does anything of its own accord. A stall is
/// measured from outside, so it may look a little shorter here.
const LONG: Duration = Duration::from_millis(900);
const AFTER_A_LONG_ONE: Duration = Duration::from_millis(1500);
/// How long spells are kept. Far longer than any wait that is measured.
const MEMORY: Duration = Duration::from_secs(120);

#[derive(Clone, Copy)]
struct Spell {
    from: Instant,
    until: Instant,
}

#[derive(Default)]
struct Sky {
    spells: VecDeque<Spell>,
    /// The probe of each number was sent then, and its answer has not come yet.
    probing: BTreeMap<u32, Instant>,
    /// A fault began then, and lasts.
    held_up: Option<Instant>,
}

impl Sky {
    fn note(&mut self, spell: Spell) {
        while self.spells.front().is_some_and(|first| first.until + MEMORY < spell.from) {
            self.spells.pop_front();
        }
        self.spells.push_back(spell);
    }
}

/// What is known of the times in which the server could not do its work.
#[derive(Default)]
pub struct Weather(Mutex<Sky>);

impl Weather {
    /// The server was, or may have been, held up for all of this time.
    pub fn was_bad(&self, from: Instant, until: Instant) {
        self.0.lock().expect("no panic").note(Spell { from, until });
    }

    /// Does what holds the server up for as long as it takes.
    pub fn is_bad_during<T>(&self, fault: impl FnOnce() -> T) -> T {
        let from = Instant::now();
        self.0.lock().expect("no panic").held_up = Some(from);
        let result = fault();
        let mut sky = self.0.lock().expect("no panic");
        sky.held_up = None;
        sky.note(Spell { from, until: Instant::now() });
        result
    }

    /// A probe leaves then; from then on until [`Weather::answered`] the time counts as bad.
    pub fn probe(&self, number: u32, sent: Instant) {
        self.0.lock().expect("no panic").probing.insert(number, sent);
    }

    /// The probe's answer came after `Some(span)` that is worth to be noted, or soon enough.
    pub fn answered(&self, number: u32, noted: Option<Duration>) {
        let mut sky = self.0.lock().expect("no panic");
        if let (Some(from), Some(span)) = (sky.probing.remove(&number), noted) {
            sky.note(Spell { from, until: from + span });
        }
    }

    /// How much of this time was bad, with the time that the module then waits.
    pub fn between(&self, from: Instant, until: Instant) -> Duration {
        let sky = self.0.lock().expect("no panic");
        let open = sky.probing.values().copied().chain(sky.held_up);
        let open = open.map(|begun| Spell { from: begun, until: until.max(begun) });
        covered(sky.spells.iter().copied().chain(open).collect(), from, until)
    }
}

/// How much of a span the spells cover. Those that touch are one.
fn covered(mut spells: Vec<Spell>, from: Instant, until: Instant) -> Duration {
    spells.sort_by_key(|spell| spell.from);
    let mut joined: Vec<Spell> = Vec::new();
    for spell in spells {
        match joined.last_mut() {
            Some(last) if spell.from <= last.until => last.until = last.until.max(spell.until),
            _ => joined.push(spell),
        }
    }
    let mut total = Duration::ZERO;
    let mut counted = from;
    let mut settled = None;
    for spell in joined {
        let length = spell.until - spell.from;
        // What holds the server up while the module waits makes it wait for so much longer.
        settled = match settled.filter(|at| *at > spell.from) {
            _ if length >= LONG => Some(spell.until + AFTER_A_LONG_ONE),
            Some(at) => Some(at + length),
            None => None,
        };
        let end = settled.unwrap_or(spell.until).max(spell.until);
        let (begin, end) = (spell.from.max(counted), end.min(until));
        if end > begin {
            total += end - begin;
            counted = end;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(spells: &[(u64, u64)], from: u64, until: u64) -> u64 {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let weather = Weather::default();
        spells.iter().for_each(|&(from, until)| weather.was_bad(at(from), at(until)));
        u64::try_from(weather.between(at(from), at(until)).as_millis()).expect("a short time")
    }

    #[test]
    fn only_what_lies_within_counts_and_only_once() {
        assert_eq!(between(&[(10, 20), (15, 30), (50, 60)], 0, 100), 30);
        assert_eq!(between(&[(10, 20), (15, 30)], 12, 18), 6);
        assert_eq!(between(&[(10, 20)], 20, 90), 0);
    }

    #[test]
    fn a_long_stall_counts_for_some_time_after_it() {
        assert_eq!(between(&[(0, 1000)], 0, 10_000), 2500);
        assert_eq!(between(&[(0, 1000), (2000, 2200)], 1000, 10_000), 1700);
        assert_eq!(between(&[(0, 1000), (2600, 2800)], 1000, 10_000), 1700);
        assert_eq!(between(&[(0, 500), (500, 1000)], 0, 10_000), 2500);
    }

    #[test]
    fn the_time_of_a_fault_is_bad_from_its_beginning() {
        let weather = Weather::default();
        let begun = Instant::now();
        let during = weather.is_bad_during(|| weather.between(begun, begun + Duration::from_secs(1)));
        assert!(during > Duration::from_millis(500), "{during:?}");
        assert!(weather.between(begun, begun + Duration::from_secs(1)) < Duration::from_millis(500));
    }

    #[test]
    fn what_is_long_over_is_forgotten() {
        let weather = Weather::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        (0..1000).for_each(|second| weather.was_bad(at(second), at(second + 1)));
        assert!(weather.0.lock().expect("no panic").spells.len() < 130);
        assert_eq!(weather.between(at(990), at(999)), Duration::from_secs(9));
    }

    #[test]
    fn the_time_of_a_probe_without_an_answer_is_bad() {
        let weather = Weather::default();
        let start = Instant::now();
        weather.probe(0, start);
        let later = start + Duration::from_millis(40);
        assert_eq!(weather.between(start, later), Duration::from_millis(40));
        weather.answered(0, None);
        assert_eq!(weather.between(start, later), Duration::ZERO);
    }
}
