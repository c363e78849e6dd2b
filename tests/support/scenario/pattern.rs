//! Expected replies with gaps.

use std::collections::BTreeMap;

use super::words::{quoted, split_outside};
use crate::Reply;

/// Numbers by their names.
pub type Numbers = BTreeMap<String, i64>;

/// Returns whether a reply is as expected. Numbers that have no name yet get one.
pub(super) fn fits_reply(expected: &str, actual: &Reply, numbers: &mut Numbers) -> bool {
    let ways: [fn(&str, &Reply, &mut Numbers) -> bool; 2] = [fits_text, fits_parts];
    let alternatives = split_outside(expected, " | ");
    alternatives.into_iter().flat_map(|expected| ways.map(|way| (expected, way))).any(|(expected, way)| {
        let mut learned = numbers.clone();
        let fits = way(expected, actual, &mut learned);
        if fits {
            *numbers = learned;
        }
        fits
    })
}

fn fits_text(expected: &str, actual: &Reply, numbers: &mut Numbers) -> bool {
    if quoted(expected).is_some_and(|(bytes, rest)| rest.is_empty() && *actual == Reply::Text(bytes)) {
        return true;
    }
    if let (Some(code), Reply::Error(line)) = (expected.strip_prefix('-'), actual) {
        if !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return line.split(' ').next() == Some(code);
        }
    }
    // The dots in an array stand for items, not for text.
    let is_open = matches!(actual, Reply::List(_) | Reply::Push(_)) && expected.contains("...") && expected != "...";
    !is_open && fits(expected, &actual.to_string(), numbers)
}

/// Compares the elements of an array or a push, and the fields of a map or of INFO.
fn fits_parts(expected: &str, actual: &Reply, numbers: &mut Numbers) -> bool {
    let inside = |open: &str, close: &str| expected.strip_prefix(open)?.strip_suffix(close);
    match actual {
        Reply::List(items) if expected.starts_with('[') => {
            inside("[", "]").is_some_and(|inside| fits_items(inside, items, numbers))
        }
        Reply::Push(items) => inside(">[", "]").is_some_and(|inside| fits_items(inside, items, numbers)),
        _ => inside("{", "}").is_some_and(|inside| {
            let fields = fields_of(actual);
            split_outside(inside, ", ").into_iter().all(|field| {
                let Some((name, pattern)) = field.split_once(": ") else { return false };
                fields.iter().any(|(other, value)| other == name && fits_reply(pattern, value, numbers))
            })
        }),
    }
}

fn fits_items(inside: &str, items: &[Reply], numbers: &mut Numbers) -> bool {
    let patterns = if inside.is_empty() { Vec::new() } else { split_outside(inside, ", ") };
    fits_sequence(&patterns, items, numbers)
}

/// Compares items one by one; a pattern `...` stands for any number of them.
fn fits_sequence(patterns: &[&str], items: &[Reply], numbers: &mut Numbers) -> bool {
    match (patterns, items) {
        ([], []) => true,
        (["..."], _) => true,
        (["...", rest @ ..], _) => (0..=items.len()).any(|skipped| {
            let mut learned = numbers.clone();
            let fits = fits_sequence(rest, &items[skipped..], &mut learned);
            if fits {
                *numbers = learned;
            }
            fits
        }),
        ([pattern, patterns @ ..], [item, items @ ..]) => {
            fits_reply(pattern, item, numbers) && fits_sequence(patterns, items, numbers)
        }
        _ => false,
    }
}

/// The fields of a map, of the flat array that is a map in RESP2, or of INFO.
fn fields_of(reply: &Reply) -> Vec<(String, Reply)> {
    let value = |text: &str| text.parse().map_or_else(|_| Reply::text(text), Reply::Int);
    let field = |line: &str| line.split_once(':').map(|(name, text)| (name.to_owned(), value(text)));
    match reply {
        Reply::Text(bytes) => String::from_utf8_lossy(bytes).lines().filter_map(field).collect(),
        Reply::List(items) if items.len() % 2 == 1 || items.iter().step_by(2).any(|name| !name.is_text()) => Vec::new(),
        Reply::List(_) | Reply::Map(_) => reply.pairs(),
        _ => Vec::new(),
    }
}

/// Returns whether a text is as expected. Numbers that have no name yet get one.
pub fn fits(expected: &str, actual: &str, numbers: &mut Numbers) -> bool {
    if let Some(rest) = expected.strip_prefix("...") {
        return actual
            .char_indices()
            .map(|(at, _)| at)
            .chain([actual.len()])
            .any(|at| fits(rest, &actual[at..], &mut numbers.clone()) && fits(rest, &actual[at..], numbers));
    }
    if let Some((low, high, rest)) = range(expected, numbers) {
        let Some((number, behind)) = integer(actual) else { return false };
        return (low..=high).contains(&number) && fits(rest, behind, numbers);
    }
    if let Some((name, rest)) = name(expected) {
        let Some((number, behind)) = integer(actual) else { return false };
        let is_known = value_of(name, numbers);
        if is_known.is_none() && name.contains(['+', '*']) {
            return false; // A sum of a name that nothing has.
        }
        if is_known.is_none() {
            numbers.insert(name.to_owned(), number);
        }
        return is_known.is_none_or(|known| known == number) && fits(rest, behind, numbers);
    }
    match (expected.chars().next(), actual.chars().next()) {
        (None, None) => true,
        (Some(wanted), Some(got)) => {
            wanted == got && fits(&expected[wanted.len_utf8()..], &actual[got.len_utf8()..], numbers)
        }
        _ => false,
    }
}

/// The integer with which a text begins, and the rest.
fn integer(text: &str) -> Option<(i64, &str)> {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'-').count();
    let (number, rest) = text.split_at(digits);
    Some((number.parse().ok()?, rest))
}

/// The range with which an expectation begins, and the rest: `5..9`, `5..`, `<end>..<end+5>`.
fn range<'t>(text: &'t str, numbers: &Numbers) -> Option<(i64, i64, &'t str)> {
    let bound = |text: &'t str| match name(text) {
        Some((name, rest)) => Some((value_of(name, numbers)?, rest)),
        None => integer(text),
    };
    let (low, rest) = bound(text)?;
    let rest = rest.strip_prefix("..").filter(|rest| !rest.starts_with('.'))?;
    let (high, rest) = bound(rest).unwrap_or((i64::MAX, rest));
    Some((low, high, rest))
}

/// The number with this name, or the sum, difference or product of two: `end+5`, `end-begin`, `begin*1000`.
pub(super) fn value_of(name: &str, numbers: &Numbers) -> Option<i64> {
    let combined = || {
        let at = name.rfind(['+', '-']).or_else(|| name.rfind('*'))?;
        let (left, right) = (value_of(&name[..at], numbers)?, value_of(&name[at + 1..], numbers)?);
        match name.as_bytes()[at] {
            b'+' => left.checked_add(right),
            b'-' => left.checked_sub(right),
            _ => left.checked_mul(right),
        }
    };
    numbers.get(name).copied().or_else(|| name.parse().ok()).or_else(combined)
}

/// Puts numbers into the place of their names.
///
/// # Errors
/// The name that has no number.
pub(super) fn filled(word: &str, numbers: &Numbers) -> Result<String, String> {
    let Some((before, (name, rest))) = word.char_indices().find_map(|(at, _)| Some((&word[..at], name(&word[at..])?)))
    else {
        return Ok(word.to_owned());
    };
    let number = value_of(name, numbers).ok_or_else(|| format!("nothing has the name <{name}>"))?;
    Ok(format!("{before}{number}{}", filled(rest, numbers)?))
}

/// The name that `text` begins with, and what follows it.
fn name(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.strip_prefix('<')?.split_once('>')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "+-*".contains(c));
    is_name.then_some((name, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_gaps_names_and_ranges() {
        let mut numbers = Numbers::from([("end".to_owned(), 100)]);
        let right = [
            ("-ERR ...", "-ERR no"),
            ("... door", "del 0 door"),
            ("...", ""),
            ("PXAT <new> x", "PXAT 7 x"),
            ("<new>", "7"),
        ];
        let in_range = [("<end+5>", "105"), ("5..9 ms", "9 ms"), ("-3..", "-2"), ("<end>..<end+5>", "105")];
        for (expected, actual) in right.iter().chain(&in_range) {
            assert!(fits(expected, actual, &mut numbers), "{expected}, {actual}");
        }
        let wrong = [("-ERR ...", "OK"), ("a ... c", "a b"), ("", "x"), ("<end>", "101"), ("<other>", "x")];
        let outside = [("5..9", "10"), ("5..", "4"), ("<end>..<end+5>", "106")];
        for (expected, actual) in wrong.iter().chain(&outside) {
            assert!(!fits(expected, actual, &mut numbers), "{expected}, {actual}");
        }
    }

    #[test]
    fn names_are_filled_in() {
        let numbers = Numbers::from([("b".to_owned(), 7), ("now".to_owned(), 100)]);
        assert_eq!(filled("<b>:<now-5>.", &numbers), Ok("7:95.".to_owned()));
        assert_eq!(filled("<now+b-1> <b*2+now>", &numbers), Ok("106 114".to_owned()));
        assert_eq!(filled("if a < b then", &numbers), Ok("if a < b then".to_owned()));
        assert!(filled("<c>", &numbers).is_err());
    }

    #[test]
    fn fields_fit_in_any_order() {
        let mut numbers = Numbers::new();
        let fields = ["state", "mutex", "owner", "alice"].map(Reply::text);
        let list = Reply::list(fields);
        assert!(fits_reply("{owner: alice}", &list, &mut numbers));
        assert!(!fits_reply("{owner: bob}", &list, &mut numbers) && !fits_reply("{holds: 1}", &list, &mut numbers));
        assert!(fits_reply("[{owner: alice, state: ...}]", &Reply::list([list.clone()]), &mut numbers));
        assert!(fits_reply("[..., mutex, ..., alice]", &list, &mut numbers));
        assert!(!fits_reply("[..., mutex, alice]", &list, &mut numbers) && !fits_reply("[state]", &list, &mut numbers));
        let info = Reply::text("# lock\r\nlock_waiters:2\r\nlock_sessions:0\r\n");
        assert!(fits_reply("{lock_waiters: <n>}", &info, &mut numbers) && numbers["n"] == 2);
    }

    #[test]
    fn errors_fit_by_code_and_strings_by_bytes() {
        let mut numbers = Numbers::new();
        let error = Reply::Error("NOTOWNER somebody else".to_owned());
        assert!(fits_reply("-NOTOWNER", &error, &mut numbers) && !fits_reply("-NOTHELD", &error, &mut numbers));
        assert!(fits_reply(r#""\x00"*2"#, &Reply::Text(vec![0, 0]), &mut numbers));
        assert!(
            !fits_reply("1", &Reply::text("1"), &mut numbers) && fits_reply("\"1\"", &Reply::text("1"), &mut numbers)
        );
    }
}
