//! Numbers as they are read: three significant digits, thousands in groups.

use crate::section::{Bar, Limit};

const DIGITS: usize = 3;
/// As many digits as are ever shown to tell a figure from its limit.
const MOST_DIGITS: usize = 6;

/// A number with three significant digits.
pub fn figure(value: f64) -> String {
    digits(value, DIGITS)
}

/// The figure of a bar, with as many digits as it takes to see on which side of its limits it is.
pub fn figure_of(bar: &Bar) -> String {
    let limits: Vec<f64> = [Some(bar.limit), bar.aim].into_iter().flatten().map(number).collect();
    let told_apart =
        |n: &usize| limits.iter().all(|&limit| limit == bar.value || digits(limit, *n) != digits(bar.value, *n));
    digits(bar.value, (DIGITS..MOST_DIGITS).find(told_apart).unwrap_or(MOST_DIGITS))
}

/// A limit, as in `≤ 1.35`.
pub fn limit(limit: Limit) -> String {
    let sign = match limit {
        Limit::AtMost(_) => '≤',
        Limit::AtLeast(_) => '≥',
    };
    // A limit is a round number, which is shown in full.
    format!("{sign} {}", grouped(&number(limit).to_string()))
}

fn number(limit: Limit) -> f64 {
    match limit {
        Limit::AtMost(number) | Limit::AtLeast(number) => number,
    }
}

fn digits(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return value.to_string();
    }
    // Rounded first: 9.996 has one digit more before the point than it seems.
    let rounded: f64 = format!("{value:.*e}", digits - 1).parse().expect("a number as it was written");
    let whole = (value - value.round()).abs() <= value.abs() * 1e-9;
    let before_the_point = rounded.abs().max(f64::MIN_POSITIVE).log10().floor() as i32 + 1;
    let decimals = if whole { 0 } else { usize::try_from(digits as i32 - before_the_point).unwrap_or(0) };
    grouped(&format!("{rounded:.decimals$}"))
}

/// Puts a comma between each three digits before the point.
fn grouped(number: &str) -> String {
    let (whole, fraction) = number.split_at(number.find('.').unwrap_or(number.len()));
    let (sign, whole) = whole.split_at(whole.len() - whole.trim_start_matches('-').len());
    let mut text = String::from(sign);
    for (position, digit) in whole.chars().enumerate() {
        if position > 0 && (whole.len() - position) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text + fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_whole_numbers_no_fraction() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (400.0, "400"),
            (1.2345, "1.23"),
            (1.5, "1.50"),
            (9.996, "10.0"),
            (0.012_345, "0.0123"),
            (0.000_099_96, "0.000100"),
            (123.456, "123"),
            (999.6, "1,000"),
            (10_000.0, "10,000"),
            (123_456.7, "123,000"),
            (1_234_567.0, "1,230,000"),
            (-1234.0, "-1,230"),
            (-0.5, "-0.500"),
            (10f64.powf(4f64.log10()), "4"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(figure(value), text, "{value}");
        }
    }

    #[test]
    fn the_figure_of_a_bar_shows_on_which_side_of_its_limits_it_is() {
        let bar = |value, limit, aim| figure_of(&Bar { what: String::new(), value, limit, aim });
        assert_eq!(bar(1.21, Limit::AtMost(1.35), None), "1.21");
        assert_eq!(bar(0.999_82, Limit::AtLeast(0.999), None), "1.00");
        assert_eq!(bar(0.998_94, Limit::AtLeast(0.999), None), "0.9989");
        assert_eq!(bar(1.3504, Limit::AtMost(1.35), None), "1.3504");
        assert_eq!(bar(1.2504, Limit::AtMost(1.35), Some(Limit::AtMost(1.25))), "1.2504");
        assert_eq!(bar(1.35, Limit::AtMost(1.35), None), "1.35");
    }

    #[test]
    fn limits_are_shown_in_full() {
        assert_eq!(limit(Limit::AtMost(0.65)), "≤ 0.65");
        assert_eq!(limit(Limit::AtLeast(0.9995)), "≥ 0.9995");
        assert_eq!(limit(Limit::AtMost(10_000.0)), "≤ 10,000");
    }
}
