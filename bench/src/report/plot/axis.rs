//! Linear and logarithmic axes of one type.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::report::figure::figure;

/// How many ticks a linear axis has about.
const TICKS: f64 = 6.0;
/// From here on numbers are too far apart for a linear axis.
const WIDE: f64 = 100.0;

/// Where numbers are: a position is the number, or its logarithm.
#[derive(Clone, Debug)]
pub struct Axis {
    logarithmic: bool,
    positions: Range<f64>,
    /// Positions that are named.
    ticks: Vec<f64>,
}

impl Axis {
    /// An axis that has all `numbers`, from zero or, if it is logarithmic, from one power of ten to another.
    pub fn new(numbers: &[f64], logarithmic: bool) -> Self {
        if logarithmic { Self::logarithmic(numbers) } else { Self::linear(most(numbers)) }
    }

    /// The same, logarithmic where the numbers are far apart.
    pub fn fitting(numbers: &[f64]) -> Self {
        Self::new(numbers, far_apart(numbers))
    }

    /// An axis with ticks just where there are numbers.
    pub fn at(numbers: &[f64]) -> Self {
        let logarithmic = far_apart(numbers);
        let ticks = numbers.iter().map(|&number| if logarithmic { number.log10() } else { number }).collect();
        let [from, to] = [least(numbers), most(numbers)].map(|end| if logarithmic { end.log10() } else { end });
        Self { logarithmic, positions: from..to, ticks }
    }

    fn linear(most: f64) -> Self {
        let most = if most > 0.0 { most } else { 1.0 };
        let step = round_step(most / TICKS);
        let steps = (most / step - 1e-9).ceil();
        let ticks = (0..=steps as u32).map(|multiple| f64::from(multiple) * step).collect();
        Self { logarithmic: false, positions: 0.0..steps * step, ticks }
    }

    fn logarithmic(numbers: &[f64]) -> Self {
        let above_zero: Vec<f64> = numbers.iter().copied().filter(|&number| number > 0.0).collect();
        let (from, to) = match above_zero.is_empty() {
            true => (0.0, 1.0),
            false => (least(&above_zero).log10().floor(), most(&above_zero).log10().ceil()),
        };
        let to = to.max(from + 1.0);
        let marks: &[f64] = if to - from <= 2.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let decades = (from as i32..=to as i32).map(f64::from);
        let ticks = decades.flat_map(|decade| marks.iter().map(move |mark| decade + mark.log10()));
        Self { logarithmic: true, positions: from..to, ticks: ticks.filter(|&tick| tick <= to).collect() }
    }

    /// Ending soon behind the last of the numbers: after `room`, a part of the whole.
    pub fn with_room(mut self, numbers: &[f64], room: f64) -> Self {
        let last = self.position(most(numbers)).max(self.positions.start);
        self.positions.end = last + (self.positions.end - self.positions.start) * room;
        self.ticks.retain(|&tick| tick <= self.positions.end);
        self
    }

    /// With another power of ten before a least number that would have no distance from the start.
    pub fn with_foot(mut self, numbers: &[f64]) -> Self {
        let position = |number: &f64| self.logarithmic && *number > 0.0 && number.log10() < self.positions.start + 0.2;
        if numbers.iter().any(position) {
            self.positions.start -= 1.0;
            self.ticks.insert(0, self.positions.start);
        }
        self
    }

    fn number(&self, position: f64) -> f64 {
        if self.logarithmic { 10f64.powf(position) } else { position }
    }

    /// What has no logarithm is at the start.
    fn position(&self, number: f64) -> f64 {
        match (self.logarithmic, number > 0.0) {
            (false, _) => number,
            (true, true) => number.log10(),
            (true, false) => self.positions.start,
        }
    }

    /// The title, given what the numbers are.
    pub fn title(&self, numbers: &str) -> String {
        if self.logarithmic { format!("{numbers} (logarithmic)") } else { numbers.to_owned() }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, number: &f64, (first, last): (i32, i32)) -> i32 {
        let whole = self.positions.end - self.positions.start;
        let part = if whole > 0.0 { (self.position(*number) - self.positions.start) / whole } else { 0.5 };
        first + (f64::from(last - first) * part).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.iter().map(|&tick| self.number(tick)).collect()
    }

    fn range(&self) -> Range<f64> {
        self.number(self.positions.start)..self.number(self.positions.end)
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, number: &f64) -> String {
        // Not more digits than a tick needs, whatever computing its number has left of them.
        let text = figure(*number);
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
    }
}

fn least(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

fn far_apart(numbers: &[f64]) -> bool {
    least(numbers) > 0.0 && most(numbers) / least(numbers) >= WIDE
}

/// The next higher 1, 2 or 5 with zeros.
fn round_step(least: f64) -> f64 {
    let decade = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0].map(|step| step * decade).into_iter().find(|&step| step >= least).unwrap_or(10.0 * decade)
}

#[cfg(test)]
mod tests {
    use plotters::coord::ranged1d::BoldPoints;

    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.key_points(BoldPoints(100)).iter().map(|tick| axis.format_ext(tick)).collect()
    }

    fn place(axis: &Axis, number: f64) -> i32 {
        axis.map(&number, (0, 1000))
    }

    #[test]
    fn a_linear_axis_has_round_ticks_from_zero() {
        let axis = Axis::new(&[3.0, 11.0], false);
        assert_eq!(labels(&axis), ["0", "2", "4", "6", "8", "10", "12"]);
        assert_eq!([0.0, 3.0, 12.0].map(|number| place(&axis, number)), [0, 250, 1000]);
        assert_eq!(axis.map(&3.0, (400, 0)), 300, "upwards");
        assert_eq!(labels(&Axis::new(&[0.3], false)), ["0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3"]);
        assert_eq!(Axis::new(&[0.0], false).range(), 0.0..1.0);
    }

    #[test]
    fn a_logarithmic_axis_has_powers_of_ten_and_more_where_they_are_few() {
        let axis = Axis::new(&[0.05, 800.0], true);
        assert_eq!(labels(&axis), ["0.01", "0.1", "1", "10", "100", "1,000"]);
        assert_eq!([0.0, 0.1, 1000.0].map(|number| place(&axis, number)), [0, 200, 1000]);
        assert_eq!(labels(&Axis::new(&[30.0, 60.0], true)), ["10", "20", "50", "100"]);
        assert_eq!(labels(&Axis::new(&[0.0], true)), ["1", "2", "5", "10"]);
    }

    #[test]
    fn what_is_far_apart_is_put_on_a_logarithmic_axis() {
        assert!(Axis::fitting(&[1.0, 100.0]).logarithmic);
        assert!(!Axis::fitting(&[1.0, 99.0]).logarithmic);
        assert!(!Axis::fitting(&[0.0, 1000.0]).logarithmic);
        let axis = Axis::at(&[2.0, 10.0, 2000.0]);
        assert_eq!(labels(&axis), ["2", "10", "2,000"]);
        assert_eq!([2.0, 2000.0].map(|number| place(&axis, number)), [0, 1000]);
    }

    #[test]
    fn a_bar_has_a_length_on_a_logarithmic_axis() {
        let numbers = [1.0, 50.0, 0.0];
        let axis = Axis::new(&numbers, true).with_foot(&numbers);
        assert_eq!(labels(&axis)[0], "0.1");
        assert!(place(&axis, 1.0) > 0);
        assert_eq!(place(&axis, 0.0), 0);
    }
}
