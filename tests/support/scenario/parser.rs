//! From the text of a file to its scenarios.

use super::alternatives::{Values, combined, defined, lines_of};
use super::words::{commands, split_outside};
use super::{Change, Line, Scenario, Step};

/// A line with its number.
type Numbered<'t> = (usize, &'t str);

/// # Errors
/// The number and the text of a line that is not understood.
pub(super) fn parse(text: &str) -> Result<Vec<Scenario>, String> {
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
    if parts.is_empty() {
        parts.push(("", Vec::new()));
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
    let expected = |text: &str| Some(text.trim().to_owned()).filter(|text| text != "(nothing)");
    let (head, rest) = text.split_once(' ').unwrap_or((text, ""));
    Some(match (head, rest) {
        ("*", line) => Step::Trace(expected(line)),
        ("r*", line) => Step::ReplicaTrace(expected(line)),
        ("stream:", line) => Step::Stream(expected(line)),
        ("took", range) => Step::Took(range.to_owned()),
        ("now", range) => Step::Now(range.to_owned()),
        ("snapshot", "") => Step::Snapshot,
        ("unchanged", "") => Step::Unchanged,
        ("wait", ms) => Step::Wait(ms.parse().ok()?),
        ("stall", ms) => Step::Stall(ms.parse().ok()?),
        ("server", "stops") => Step::Server(false),
        ("server", "goes on") => Step::Server(true),
        ("replica", "stops") => Step::Replica(false),
        ("replica", "goes on") => Step::Replica(true),
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
        parse(text).expect("a scenario").remove(0)
    }

    fn only_step(text: &str) -> Step {
        only_one(text).lines.remove(0).step
    }

    #[test]
    fn commands_have_their_replies_behind() {
        let Step::Send { commands, replies, .. } = only_step("a> MULTI ; EVAL \"return 1\" 0 -> OK ; QUEUED") else {
            panic!("a command")
        };
        assert_eq!(commands[1], [b"EVAL".as_slice(), b"return 1", b"0"]);
        assert_eq!(replies, ["OK", "QUEUED"]);
        assert!(parse("a> MULTI ; EXEC -> OK").is_err(), "two commands and one reply");
    }

    #[test]
    fn every_step_is_understood() {
        let (a, door) = ("a".to_owned(), "door".to_owned());
        assert_eq!(only_step("a< [OK, 1]"), Step::Receive { client: a.clone(), reply: "[OK, 1]".to_owned() });
        assert_eq!(only_step("a closes"), Step::Close { client: a.clone() });
        assert_eq!(only_step("a waits"), Step::Waits { client: a.clone() });
        assert_eq!(only_step("a hears nothing"), Step::HearsNothing { client: a });
        assert_eq!(only_step("* del 0 door"), Step::Trace(Some("del 0 door".to_owned())));
        assert_eq!(only_step("* (nothing)"), Step::Trace(None));
        assert_eq!(only_step("r* del 0 door"), Step::ReplicaTrace(Some("del 0 door".to_owned())));
        assert_eq!(only_step("stream: DEL door"), Step::Stream(Some("DEL door".to_owned())));
        assert_eq!(only_step("took 1..5"), Step::Took("1..5".to_owned()));
        assert_eq!(only_step("now <end>.."), Step::Now("<end>..".to_owned()));
        assert_eq!(only_step("wait 20"), Step::Wait(20));
        assert_eq!(only_step("stall 20"), Step::Stall(20));
        assert_eq!(only_step("replica stops"), Step::Replica(false));
        assert_eq!(only_step("server goes on"), Step::Server(true));
        assert_eq!(only_step("cluster fails"), Step::Cluster(Change::Fails));
        assert_eq!(only_step("slot of door leaves"), Step::Cluster(Change::Leaves { key: door }));
    }

    #[test]
    fn lines_and_scenarios_can_be_for_some_servers() {
        let scenario = only_one("# A fact.\nconfig save 1\nonly valkey\n\n[redis 7.0, valkey 8] * one\n[real] * two\n");
        assert_eq!(scenario.config, ["save 1"]);
        assert!(scenario.is_shown_by(OTHER) && !scenario.is_shown_by(OLD));
        let [one, two] = scenario.lines.as_slice() else { panic!("two lines") };
        assert!(one.is_for(OLD, true) && !one.is_for(OTHER, true) && two.is_for(OLD, false) && !two.is_for(OLD, true));
        assert_eq!((one.number, two.number), (5, 6));
    }

    #[test]
    fn scenarios_share_the_lines_before_first_heading() {
        let all = parse("not simulated\na> PING\n## one\nwait 1\n## two\neach $X = 1 | 2\nwait $X").expect("scenarios");
        assert_eq!(all.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["one", "two[1]", "two[2]"]);
        assert!(all.iter().all(|one| one.not_simulated && one.lines.len() == 2));
        assert_eq!(all[2].lines[1].step, Step::Wait(2));
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(parse("wait 1\nnonsense here").unwrap_err(), "line 2 is not understood: nonsense here");
    }
}
