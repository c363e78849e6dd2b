//! From the text of a file to its scenarios.

use super::alternatives::{Values, combined, defined, lines_of};
use super::words::{commands, split_outside};
use super::{Change, Line, Record, Scenario, Step};
use crate::Flavour;

/// The replies that a client waits for.
const WAITS: [&str; 2] = ["(waits)", "(may wait)"];

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
            (None, _) if line.starts_with("##") => return Err(not_understood(number, line)),
            (None, _) if line.is_empty() || line.starts_with('#') => {}
            (None, Some((_, lines))) => lines.push((number, line)),
            (None, None) => shared.push((number, line)),
        }
    }
    if parts.is_empty() {
        return Err("it has no scenario".to_owned());
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
        scenario.checked()
    };
    all.iter().enumerate().map(with).collect()
}

fn not_understood(number: usize, text: &str) -> String {
    format!("line {number} is not understood: {text}")
}

impl Scenario {
    /// Returns the scenario, or what in it would check nothing.
    fn checked(self) -> Result<Self, String> {
        let waits = |name: &str| {
            self.lines.iter().any(|line| match &line.step {
                Step::Send { client, replies, .. } => client == name && WAITS.contains(&replies.concat().as_str()),
                _ => false,
            })
        };
        let records = |record| self.lines.iter().any(|line| matches!(line.step, Step::Recorded(it, _) if it == record));
        let problem = match self.ways.iter().find(|(client, _)| !waits(client)) {
            _ if self.lines.is_empty() => "has no lines".to_owned(),
            Some((client, _)) => format!("has no wait of {client}"),
            None if records(Record::Trace) && !self.witness => "has no witness".to_owned(),
            None if records(Record::ReplicaTrace) && !(self.witness && self.replica) => {
                "has no replica with a witness".to_owned()
            }
            None => return Ok(self),
        };
        Err(format!("{} {problem}", self.name))
    }

    fn add(&mut self, number: usize, text: &str) -> Result<(), String> {
        match (text, text.split_once(' ')) {
            (_, Some(("config", line))) => self.config.push(line.to_owned()),
            (_, Some(("only", kinds))) if self.only.is_empty() => {
                self.only = list(kinds).ok_or_else(|| not_understood(number, text))?;
            }
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
        Some(marked) => marked.split_once(']').and_then(|(kinds, rest)| Some((list(kinds)?, rest.trim())))?,
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
    let is_arrow = |word: &Vec<u8>| word.starts_with(b"->") || word == b"=>";
    if commands.iter().flatten().any(is_arrow) {
        return None;
    }
    let fits = replies.is_empty() || replies.len() == commands.len() || WAITS.iter().any(|word| replies == [*word]);
    fits.then(|| Step::Send { client: client.to_owned(), commands, replies })
}

/// Returns the servers of a mark, or `None` if there is no such server.
fn list(names: &str) -> Option<Vec<String>> {
    let all: Vec<String> = names.split(',').map(|name| name.trim().to_owned()).collect();
    let exists = |name: &String| {
        let name = name.strip_prefix("not ").unwrap_or(name);
        ["real", "simulated"].contains(&name) || Flavour::exists(name)
    };
    all.iter().all(exists).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Program;

    const OLD: Flavour = Flavour { program: Program::Redis, version: (7, 0) };
    const OTHER: Flavour = Flavour { program: Program::Valkey, version: (9, 1) };

    fn only_one(text: &str) -> Scenario {
        parse(&format!("## one\n{text}")).expect("a scenario").remove(0)
    }

    #[test]
    fn lines_and_scenarios_can_be_for_some_servers() {
        let text = "# A fact.\nconfig save 1\nonly valkey\nwitness\n[redis 7.0, valkey 8] * one\n[real] * two\n[not redis 7.0] * three";
        let scenario = only_one(text);
        assert_eq!(scenario.config, ["save 1"]);
        assert!(scenario.is_shown_by(OTHER, false) && !scenario.is_shown_by(OLD, false));
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
    fn mistakes_that_would_check_nothing_are_refused() {
        let lines =
            ["", "only valky\nwait 1", "[valky] wait 1", "a> PING ->PONG", "each c waits\nwait 1", "* (nothing)"];
        let texts = lines.map(|line| format!("## one\n{line}"));
        for text in ["", "##one\nwait 1"].into_iter().chain(texts.iter().map(String::as_str)) {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn record_has_several_lines_or_none() {
        let [some, none] = [only_one("stream: MULTI ; DEL x ; EXEC"), only_one("witness\n* (nothing)")]
            .map(|one| one.lines[0].step.clone());
        let lines = ["MULTI", "DEL x", "EXEC"].map(str::to_owned).to_vec();
        assert_eq!((some, none), (Step::Recorded(Record::Stream, lines), Step::Recorded(Record::Trace, Vec::new())));
    }
}
