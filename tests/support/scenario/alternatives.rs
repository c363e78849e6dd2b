//! Lines and scenarios that stand for several: `{a|b}`, `{1..5}` and `each`.

use std::collections::BTreeMap;

use super::Way;
use super::words::split_outside;

/// Returns the lines for which a line stands: one for each combination of its alternatives. The same alternatives twice have the
/// same value. Behind ` -> `, alternatives that are as many as those of the command go with them.
pub(super) fn lines_of(text: &str) -> Vec<String> {
    let (command, reply) = match split_outside(text, " -> ").as_slice() {
        [command, reply] => (*command, *reply),
        _ => (text, ""),
    };
    let Some((group, values)) = first_group(command).or_else(|| first_group(reply)) else {
        return vec![text.to_owned()];
    };
    let line = |(number, value): (usize, &String)| {
        let command = command.replace(group, value);
        match reply {
            "" => command,
            reply => {
                format!("{command} -> {}", with_value(&reply.replace(group, value), &command, number, values.len()))
            }
        }
    };
    values.iter().enumerate().map(line).flat_map(|line| lines_of(&line)).collect()
}

/// Gives alternatives of the reply their value, if they are this many and not those of another place in the command.
fn with_value(reply: &str, command: &str, number: usize, count: usize) -> String {
    match first_group(reply) {
        Some((group, values)) if values.len() == count && !command.contains(group) => {
            with_value(&reply.replace(group, &values[number]), command, number, count)
        }
        _ => reply.to_owned(),
    }
}

/// Finds the first alternatives: their text and their values.
fn first_group(text: &str) -> Option<(&str, Vec<String>)> {
    let (mut in_quotes, mut escaped) = (false, false);
    for (at, char) in text.char_indices() {
        match char {
            '"' if !escaped => in_quotes = !in_quotes,
            '{' if !in_quotes => {
                let end = at + 1 + split_outside(&text[at + 1..], "}")[0].len();
                let values = values_of(text.get(at + 1..end)?);
                if values.len() > 1 && end < text.len() {
                    return Some((&text[at..=end], values));
                }
            }
            _ => {}
        }
        escaped = char == '\\' && !escaped;
    }
    None
}

/// The values of `a|b`, or of a range: `1..5`, `3..1`, `001..100`.
fn values_of(inside: &str) -> Vec<String> {
    let bounds =
        inside.split_once("..").and_then(|(low, high)| Some((low.len(), low.parse().ok()?, high.parse().ok()?)));
    match bounds {
        Some((width, low, high)) => {
            let all: Vec<u64> = if low <= high { (low..=high).collect() } else { (high..=low).rev().collect() };
            all.into_iter().map(|number| format!("{number:0width$}")).collect()
        }
        None => split_outside(inside, "|").into_iter().map(str::to_owned).collect(),
    }
}

/// The values of variables, and the ways in which clients wait, for one play.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Values {
    variables: BTreeMap<String, String>,
    pub ways: Vec<(String, Way)>,
    labels: Vec<String>,
}

impl Values {
    /// Puts the values of variables into a line. A value can contain other variables.
    pub fn filled(&self, line: &str) -> String {
        let Some((before, rest)) = line.split_once('$') else { return line.to_owned() };
        let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let (name, behind) = rest.split_at(rest.find(|c| !is_part(c)).unwrap_or(rest.len()));
        match self.variables.get(name) {
            Some(value) => format!("{before}{}{}", self.filled(value), self.filled(behind)),
            None => format!("{before}${name}{}", self.filled(behind)),
        }
    }

    /// Returns the name of a scenario with these values, without spaces.
    pub fn named(&self, name: &str, number: usize) -> String {
        let label = self.labels.join(",").replace(' ', "_");
        match label.len() {
            0 => name.to_owned(),
            1..=40 => format!("{name}[{label}]"),
            _ => format!("{name}[{number}]"),
        }
    }

    fn with(&self, names: &[&str], values: &[&str]) -> Option<Self> {
        let mut all = self.clone();
        for (name, value) in names.iter().zip(values) {
            match name.strip_suffix(" waits") {
                Some(client) => all.ways.push((client.to_owned(), way(value)?)),
                None => {
                    all.variables.insert(name.trim_start_matches('$').to_owned(), (*value).to_owned());
                }
            }
            all.labels.push((*value).to_owned());
        }
        (names.len() == values.len()).then_some(all)
    }
}

/// Adds a variable with one value, which is no part of the name of a scenario.
pub(super) fn defined(mut before: Vec<Values>, name: &str, text: &str) -> Vec<Values> {
    before.iter_mut().for_each(|all| {
        all.variables.insert(name.trim_start_matches('$').to_owned(), text.to_owned());
    });
    before
}

/// Combines earlier values with each alternative of a line `each ...`, which is `text`.
pub(super) fn combined(before: &[Values], text: &str) -> Option<Vec<Values>> {
    let (names, values) = text.split_once(" = ").unwrap_or((text, ""));
    let names: Vec<&str> = names.split(", ").map(str::trim).collect();
    let are_names = names.iter().all(|name| name.starts_with('$') || name.ends_with(" waits"));
    let values: Vec<Vec<&str>> = match (values, names.len()) {
        ("", 1) => vec![vec!["blocked"], vec!["notified"], vec!["pushed"]],
        ("", 2) => vec![
            vec!["blocked", "blocked"],
            vec!["blocked", "notified"],
            vec!["pushed", "blocked"],
            vec!["notified", "pushed"],
        ],
        (values, 1) => split_outside(values, " | ").into_iter().map(|value| vec![value.trim()]).collect(),
        (values, _) => split_outside(values, " | ").into_iter().map(tuple).collect(),
    };
    let with_each = |all: &Values| values.iter().map(|values| all.with(&names, values)).collect::<Option<Vec<_>>>();
    let combinations: Option<Vec<_>> = before.iter().map(with_each).collect();
    combinations.filter(|_| are_names).map(|all| all.concat())
}

fn tuple(values: &str) -> Vec<&str> {
    split_outside(values, ", ").into_iter().map(str::trim).collect()
}

fn way(word: &str) -> Option<Way> {
    Some(match word {
        "blocked" => Way::Blocked,
        "notified" => Way::Notified,
        "pushed" => Way::Pushed,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternatives_combine() {
        assert_eq!(lines_of("a> {GET|TYPE} x{1|2}"), ["a> GET x1", "a> GET x2", "a> TYPE x1", "a> TYPE x2"]);
        assert_eq!(lines_of("a> SET {door} \"{1|2}\""), ["a> SET {door} \"{1|2}\""]);
        assert_eq!(lines_of("a> GET {\"|\"|\"\"}"), ["a> GET \"|\"", "a> GET \"\""]);
    }

    #[test]
    fn alternatives_of_reply_go_with_those_of_command() {
        let lines = lines_of("a> {GET|TYPE} {x|y} -> {1|string}");
        assert_eq!(lines, ["a> GET x -> 1", "a> GET y -> 1", "a> TYPE x -> string", "a> TYPE y -> string"]);
    }

    #[test]
    fn same_alternatives_have_same_value() {
        assert_eq!(lines_of("{a|b}> SET {a|b} 1"), ["a> SET a 1", "b> SET b 1"]);
        assert_eq!(lines_of("w{09..10}> GET {2..1} -> {2..1}")[2..], ["w10> GET 2 -> 2", "w10> GET 1 -> 1"]);
        assert_eq!(lines_of("a> INCR x -> {1..3}").len(), 3);
        assert_eq!(lines_of("a> LOCK.INFO x -> {holds: 1..3}"), ["a> LOCK.INFO x -> {holds: 1..3}"]);
    }

    #[test]
    fn variables_combine_with_ways() {
        let all = combined(&[Values::default()], "$A, $B = 1, 2 | 3, 4").expect("variables");
        assert_eq!(all[1].filled("$A $B $AB $-1"), "3 4 $AB $-1");
        let all = combined(&all, "b waits").expect("ways");
        assert_eq!((all.len(), all[5].named("name", 0)), (6, "name[3,4,pushed]".to_owned()));
        assert_eq!(combined(&all, "b waits = sleeping"), None);
    }
}
