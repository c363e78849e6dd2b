//! Expectations with gaps: `...` stands for anything, `<name>` for a number that is remembered.

use std::collections::BTreeMap;

/// Numbers by their names.
pub type Numbers = BTreeMap<String, i64>;

/// Whether `actual` is as expected. Numbers that have no name yet get one.
pub fn fits(expected: &str, actual: &str, numbers: &mut Numbers) -> bool {
    if let Some(rest) = expected.strip_prefix("...") {
        return actual
            .char_indices()
            .map(|(at, _)| at)
            .chain([actual.len()])
            .any(|at| fits(rest, &actual[at..], &mut numbers.clone()) && fits(rest, &actual[at..], numbers));
    }
    if let Some((name, rest)) = name(expected) {
        let digits = actual.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'-').count();
        let (number, behind) = actual.split_at(digits);
        let Ok(number) = number.parse() else { return false };
        return *numbers.entry(name.to_owned()).or_insert(number) == number && fits(rest, behind, numbers);
    }
    match (expected.chars().next(), actual.chars().next()) {
        (None, None) => true,
        (Some(wanted), Some(got)) => {
            wanted == got && fits(&expected[wanted.len_utf8()..], &actual[got.len_utf8()..], numbers)
        }
        _ => false,
    }
}

/// Puts numbers in the place of their names, and times in the place of `<now+ms>`.
///
/// # Panics
/// If a name stands for nothing.
#[track_caller]
pub fn filled(word: &str, numbers: &Numbers, now_ms: i64) -> String {
    let Some((before, (name, rest))) = word.char_indices().find_map(|(at, _)| Some((&word[..at], name(&word[at..])?)))
    else {
        return word.to_owned();
    };
    let number = match name.strip_prefix("now") {
        Some("") => now_ms,
        Some(offset) => now_ms + offset.parse::<i64>().unwrap_or_else(|_| panic!("no time: <{name}>")),
        None => *numbers.get(name).unwrap_or_else(|| panic!("nothing is called <{name}>")),
    };
    format!("{before}{number}{}", filled(rest, numbers, now_ms))
}

/// The name that `text` begins with, and what follows it.
fn name(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.strip_prefix('<')?.split_once('>')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "+-".contains(c));
    is_name.then_some((name, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stays_the_same() {
        let mut numbers = Numbers::new();
        assert!(fits("SET door x PXAT <end>", "SET door x PXAT 123", &mut numbers));
        assert!(fits("[<end>, x]", "[123, x]", &mut numbers) && !fits("<end>", "124", &mut numbers));
        assert!(!fits("<other>", "x", &mut numbers));
    }

    #[test]
    fn dots_stand_for_anything() {
        let mut numbers = Numbers::new();
        assert!(fits("-ERR ...", "-ERR no", &mut numbers) && fits("... door", "del 0 door", &mut numbers));
        assert!(!fits("-ERR ...", "OK", &mut numbers) && !fits("a ... c", "a b", &mut numbers));
        assert!(fits("...", "", &mut numbers) && !fits("", "x", &mut numbers));
    }

    #[test]
    fn names_are_filled_in() {
        let numbers = Numbers::from([("b".to_owned(), 7)]);
        assert_eq!(filled("<b>:<now-5>.", &numbers, 100), "7:95.");
        assert_eq!(filled("if a < b then", &numbers, 100), "if a < b then");
    }
}
