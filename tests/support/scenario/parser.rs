//! From the text of a file to its scenarios.

use super::alternatives::{Values, combined, defined, lines_of};
use super::words::{commands, split_outside};
use super::{Change, Line, Record, Scenario, Step};

/// A line with its number.
type Numbered<'t> = (usize, &'t str);

/// Returns the scenarios of a file. One with variables stands for several.
///
/// # Errors
/// The number and the text of a line that is not understood.
pub fn parse(text: &str) -> Result<Vec<Scenario>, String> {
    let lines = (1..).zip(text.lines().map(str::trim));
    let mut shared: Vec<Numbered<'_>> = Vec::new();
    let mut parts: Vec<(&str, Vec<Numbered<'_>>)> = Vec::new();
    for (number, line) in lines {
        match (line.strip_prefix("## "), parts.last_mut()) {
            (Some(name), _) => parts.push((name.trim(), Vec::new())),
            (None, _) if line.is_empty() || line.starts_with('#') => {}
            (None, Some((_, lines))) => lines.push((number, line)),
            (None, None) => shared.push((number, line)),
        }
    }
    let all = parts.iter().map(|(name, lines)| scenarios(name, &[shared.as_slice(), lines].concat()));
    Ok(all.collect::<Result<Vec<_>, _>>()?.concat())
}

/// Returns one scenario for each combination of the variables.
fn scenarios(name: &str, lines: &[Numbered<'_>]) -> Result<Vec<Scenario>, String> {
    let mut all = vec![Values::default()];
    for (number, line) in lines {
        let values = match line.split_once(' ') {
            Some(("each", each)) => combined(&all, each),
            Some(("let", constant)) => constant.split_once(" = ").map(|(name, text)| defined(all, name, text)),
            _ => continue,
        };
        all = values.ok_or_else(|| not_understood(*number, line))?;
    }
    let lines = || lines.iter().filter(|(_, line)| !line.starts_with("each ") && !line.starts_with("let "));
    let with = |(index, values): (usize, &Values)| {
        let name = values.named(name, index + 1);
        let mut scenario = Scenario { name, ways: values.ways.clone(), ..Scenario::default() };
        lines().try_for_each(|(number, line)| scenario.add(*number, &values.filled(line)))?;
        Ok(scenario)
    };
    all.iter().enumerate().map(with).collect()
}

fn not_understood(number: usize, text: &str) -> String {
    format!("line {number} is not understood: {text}")
}

impl Scenario {
    fn add(&mut self, number: usize, text: &str) -> Result<(), String> {
        match (text, text.split_once(' ')) {
            (_, Some(("config", line))) => self.config.push(line.to_owned()),
            (_, Some(("only", kinds))) => self.only = list(kinds),
            ("not simulated", _) => self.not_simulated = true,
            ("own server", _) => self.own_server = true,
            ("witness", _) => self.witness = true,
            ("cluster", _) => self.cluster = true,
            ("replica", _) => self.replica = true,
            _ => {
                for text in lines_of(text) {
                    let line = line(number, &text).ok_or_else(|| not_understood(number, &text))?;
                    self.lines.push(line);
                }
            }
        }
        Ok(())
    }
}

fn line(number: usize, text: &str) -> Option<Line> {
    let (kinds, rest) = match text.strip_prefix('[') {
        Some(marked) => marked.split_once(']').map(|(kinds, rest)| (list(kinds), rest.trim()))?,
        None => (Vec::new(), text),
    };
    Some(Line { number, text: text.to_owned(), kinds, step: step(rest)? })
}

fn step(text: &str) -> Option<Step> {
    let (head, rest) = text.split_once(' ').unwrap_or((text, ""));
    Some(match (head, rest) {
        ("*", lines) => Step::Recorded(Record::Trace, recorded(lines)),
        ("r*", lines) => Step::Recorded(Record::ReplicaTrace, recorded(lines)),
        ("stream:", lines) => Step::Recorded(Record::Stream, recorded(lines)),
        ("now", range) => Step::Now(range.to_owned()),
        ("snapshot", "") => Step::Snapshot,
        ("unchanged", "") => Step::Unchanged,
        ("wait", ms) => Step::Wait(ms.parse().ok()?),
        ("stall", ms) => Step::Stall(ms.parse().ok()?),
        ("server", "stops") => Step::Server(false),
        ("server", "goes on") => Step::Server(true),
        ("cluster", "fails") => Step::Cluster(Change::Fails),
        ("cluster", "recovers") => Step::Cluster(Change::Recovers),
        ("slot", rest) => Step::Cluster(match rest.strip_prefix("of ")?.split_once(' ')? {
            (key, "migrates") => Change::Migrates { key: key.to_owned() },
            (key, "leaves") => Change::Leaves { key: key.to_owned() },
            _ => return None,
        }),
        ("eventually", rest) => match step(rest)? {
            Step::Send { client, mut commands, mut replies } if (commands.len(), replies.len()) == (1, 1) => {
                Step::Eventually { client, command: commands.pop()?, reply: replies.pop()? }
            }
            _ => return None,
        },
        (client, "closes") => Step::Close { client: client.to_owned() },
        (client, "waits") => Step::Waits { client: client.to_owned() },
        (client, "hears nothing") => Step::HearsNothing { client: client.to_owned() },
        (head, rest) => match (head.strip_suffix('>'), head.strip_suffix('<')) {
            (Some(client), _) => send(client, rest)?,
            (_, Some(client)) => Step::Receive { client: client.to_owned(), reply: rest.to_owned() },
            _ => return None,
        },
    })
}

fn recorded(lines: &str) -> Vec<String> {
    let lines = Some(lines).filter(|lines| *lines != "(nothing)");
    lines.into_iter().flat_map(|lines| lines.split(" ; ")).map(|line| line.trim().to_owned()).collect()
}

fn send(client: &str, text: &str) -> Option<Step> {
    let (sent, replies) = match split_outside(text, " -> ").as_slice() {
        [sent, replies] => (*sent, split_outside(replies, " ; ").iter().map(|reply| reply.trim().to_owned()).collect()),
        [sent] => (*sent, Vec::new()),
        _ => return None,
    };
    let commands = commands(sent)?;
    let fits = replies.is_empty()
        || replies.len() == commands.len()
        || ["(waits)", "(may wait)"].iter().any(|word| replies == [*word]);
    fits.then(|| Step::Send { client: client.to_owned(), commands, replies })
}

fn list(names: &str) -> Vec<String> {
    names.split(',').map(|name| name.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Flavour, Program};

    const OLD: Flavour = Flavour { program: Program::Redis, version: (7, 0) };
    const OTHER: Flavour = Flavour { program: Program::Valkey, version: (9, 1) };

    fn only_one(text: &str) -> Scenario {
        parse(&format!("## one\n{text}")).expect("a scenario").remove(0)
    }

    #[test]
    fn lines_and_scenarios_can_be_for_some_servers() {
        let text = "# A fact.\nconfig save 1\nonly valkey\n\n[redis 7.0, valkey 8] * one\n[real] * two\n[not redis 7.0] * three";
        let scenario = only_one(text);
        assert_eq!(scenario.config, ["save 1"]);
        assert!(scenario.is_shown_by(OTHER) && !scenario.is_shown_by(OLD));
        let [one, two, three] = scenario.lines.as_slice() else { panic!("three lines") };
        assert!(three.is_for(OTHER, true) && !three.is_for(OLD, true));
        assert!(one.is_for(OLD, true) && !one.is_for(OTHER, true) && two.is_for(OLD, false) && !two.is_for(OLD, true));
        assert_eq!((one.number, two.number), (6, 7));
    }

    #[test]
    fn scenarios_share_the_lines_before_first_heading() {
        let all = parse("not simulated\na> PING\n## one\nwait 1\n## two\neach $X = 1 | 2\nwait $X").expect("scenarios");
        assert_eq!(all.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["one", "two[1]", "two[2]"]);
        assert!(all.iter().all(|one| one.not_simulated && one.lines.len() == 2));
        assert_eq!(all[2].lines[1].step, Step::Wait(2));
    }

    #[test]
    fn lines_that_are_not_understood_are_refused() {
        assert_eq!(parse("## one\nnonsense here").unwrap_err(), "line 2 is not understood: nonsense here");
        assert!(parse("## one\na> MULTI ; EXEC -> OK").is_err(), "two commands and one reply");
    }

    #[test]
    fn record_has_several_lines_or_none() {
        let [some, none] =
            [only_one("stream: MULTI ; DEL x ; EXEC"), only_one("* (nothing)")].map(|one| one.lines[0].step.clone());
        let lines = ["MULTI", "DEL x", "EXEC"].map(str::to_owned).to_vec();
        assert_eq!((some, none), (Step::Recorded(Record::Stream, lines), Step::Recorded(Record::Trace, Vec::new())));
    }
}
