//! Facts about servers as text: who sends what, what each is answered, what the module hears, what replicas are told.
//!
//! ```text
//! # A comment. The first line says the fact.
//! config min-replicas-to-write 1        a line for the server's configuration
//! only redis 7.2                        no other server shows it
//! not simulated                         the simulated server does not show it
//! cluster                               the server is a node of a cluster, and has every slot
//! replica                               it has a replica, with which the client `r` speaks
//!
//! a> SET door x ; GET door              a sends two commands in one write
//! a< OK                                 and is answered
//! a< x
//! a closes
//! * del 0 door                          the next line of the module's trace
//! * (nothing)                           there is none
//! r* del 0 door                         the next line of the trace at the replica
//! stream: SET door x                    the next command that replicas and the append-only file are told
//! wait 20                               lets 20 milliseconds pass
//! stall 20                              the process is stopped for so long
//! replica stops                         the replica's process is stopped
//! replica goes on                       and does what it missed
//! slot of door migrates                 the slot of this key is on its way to another node
//! slot of door leaves                   it is another node's now, and the server knows
//! cluster fails                         a slot that is nobody's
//! cluster recovers                      that has found its node again
//! [redis 7.0, valkey] * answer b        a line that only these kinds of servers are held to
//! ```
//!
//! A client connects when it is first named. In what it sends, double quotes hold a word with spaces together, `\n` ends a
//! line, and `<a>` is the
//! number of the client `a`. In what is expected, `...` stands for anything, and `<end>` for a number, the same wherever the
//! name stands again, in what is sent too. `<now>`, `<now+20>` and `<now-20>` are times to send, in Unix milliseconds.

use std::iter;

use super::Flavour;

/// One fact.
#[derive(Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Lines for the server's configuration.
    pub config: Vec<String>,
    /// The kinds of servers that show it; all, if there is none.
    pub only: Vec<String>,
    pub simulated: bool,
    pub cluster: bool,
    pub replica: bool,
    pub lines: Vec<Line>,
}

/// One step, and where it stands.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    pub number: usize,
    pub text: String,
    /// The kinds of servers that it is for; all, if there is none.
    kinds: Vec<String>,
    pub step: Step,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    Send {
        client: String,
        commands: Vec<Vec<String>>,
    },
    Receive {
        client: String,
        reply: String,
    },
    Close {
        client: String,
    },
    /// `None`: nothing is left.
    Trace(Option<String>),
    ReplicaTrace(Option<String>),
    Stream(Option<String>),
    Wait(u64),
    Stall(u64),
    /// Whether the replica's process goes on.
    Replica(bool),
    Cluster(Change),
}

/// What becomes of a cluster.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    Migrates { key: String },
    Leaves { key: String },
    Fails,
    Recovers,
}

impl Scenario {
    /// # Panics
    /// At a line that says nothing, with its number.
    #[track_caller]
    pub fn parse(text: &str) -> Self {
        let mut scenario = Self {
            config: Vec::new(),
            only: Vec::new(),
            simulated: true,
            cluster: false,
            replica: false,
            lines: Vec::new(),
        };
        let lines = (1..).zip(text.lines().map(str::trim));
        for (number, text) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            match (text, text.split_once(' ')) {
                (_, Some(("config", line))) => scenario.config.push(line.to_owned()),
                (_, Some(("only", kinds))) => scenario.only = list(kinds),
                ("not simulated", _) => scenario.simulated = false,
                ("cluster", _) => scenario.cluster = true,
                ("replica", _) => scenario.replica = true,
                _ => {
                    let line = line(number, text);
                    scenario.lines.push(line.unwrap_or_else(|| panic!("line {number} says nothing: {text}")));
                }
            }
        }
        scenario
    }

    /// Whether this kind of server shows it.
    pub fn is_shown_by(&self, kind: Flavour) -> bool {
        is_among(kind, &self.only)
    }

    /// Whether it looks at what replicas are told.
    pub fn has_stream(&self) -> bool {
        self.lines.iter().any(|line| matches!(line.step, Step::Stream(_)))
    }
}

impl Line {
    pub fn is_for(&self, kind: Flavour) -> bool {
        is_among(kind, &self.kinds)
    }
}

fn is_among(kind: Flavour, names: &[String]) -> bool {
    names.is_empty() || names.iter().any(|name| kind.is(name))
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
    let (head, rest) = text.split_once(' ')?;
    Some(match (head, rest) {
        ("*", line) => Step::Trace(expected(line)),
        ("r*", line) => Step::ReplicaTrace(expected(line)),
        ("stream:", line) => Step::Stream(expected(line)),
        ("wait", ms) => Step::Wait(ms.parse().ok()?),
        ("stall", ms) => Step::Stall(ms.parse().ok()?),
        ("replica", "stops") => Step::Replica(false),
        ("replica", "goes on") => Step::Replica(true),
        ("cluster", "fails") => Step::Cluster(Change::Fails),
        ("cluster", "recovers") => Step::Cluster(Change::Recovers),
        ("slot", rest) => Step::Cluster(match rest.strip_prefix("of ")?.split_once(' ')? {
            (key, "migrates") => Change::Migrates { key: key.to_owned() },
            (key, "leaves") => Change::Leaves { key: key.to_owned() },
            _ => return None,
        }),
        (client, "closes") => Step::Close { client: client.to_owned() },
        (head, rest) => match (head.strip_suffix('>'), head.strip_suffix('<')) {
            (Some(client), _) => Step::Send { client: client.to_owned(), commands: commands(rest) },
            (_, Some(client)) => Step::Receive { client: client.to_owned(), reply: rest.to_owned() },
            _ => return None,
        },
    })
}

fn list(names: &str) -> Vec<String> {
    names.split(',').map(|name| name.trim().to_owned()).collect()
}

/// Commands between semicolons, as words.
fn commands(text: &str) -> Vec<Vec<String>> {
    let words: Vec<String> = words(text).collect();
    words.split(|word| word == ";").map(<[String]>::to_vec).collect()
}

/// Words between spaces, those in double quotes as one; `\n` ends a line in a word.
fn words(text: &str) -> impl Iterator<Item = String> {
    let mut rest = text;
    iter::from_fn(move || {
        rest = rest.trim_start();
        let (quoted, end) = match rest.strip_prefix('"') {
            Some(quoted) => (quoted, '"'),
            None => (rest, ' '),
        };
        let (word, behind) = quoted.split_once(end).unwrap_or((quoted, ""));
        (!rest.is_empty()).then(|| {
            rest = behind;
            word.replace("\\n", "\n")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Program;

    const OLD: Flavour = Flavour { program: Program::Redis, version: (7, 0) };
    const OTHER: Flavour = Flavour { program: Program::Valkey, version: (9, 1) };

    fn only_step(text: &str) -> Step {
        Scenario::parse(text).lines.remove(0).step
    }

    #[test]
    fn commands_of_one_write_stand_between_semicolons() {
        let commands = [vec!["EVAL", "return 1", "0"], vec!["GET", "door"]];
        let commands = commands.map(|words| words.into_iter().map(str::to_owned).collect()).to_vec();
        assert_eq!(only_step("a> EVAL \"return 1\" 0 ; GET door"), Step::Send { client: "a".to_owned(), commands });
    }

    #[test]
    fn every_step_is_understood() {
        assert_eq!(only_step("a< [OK, 1]"), Step::Receive { client: "a".to_owned(), reply: "[OK, 1]".to_owned() });
        assert_eq!(only_step("a closes"), Step::Close { client: "a".to_owned() });
        assert_eq!(only_step("* del 0 door"), Step::Trace(Some("del 0 door".to_owned())));
        assert_eq!(only_step("* (nothing)"), Step::Trace(None));
        assert_eq!(only_step("r* del 0 door"), Step::ReplicaTrace(Some("del 0 door".to_owned())));
        assert_eq!(only_step("stream: DEL door"), Step::Stream(Some("DEL door".to_owned())));
        assert_eq!(only_step("wait 20"), Step::Wait(20));
        assert_eq!(only_step("stall 20"), Step::Stall(20));
        assert_eq!(only_step("replica stops"), Step::Replica(false));
        assert_eq!(only_step("cluster fails"), Step::Cluster(Change::Fails));
        let leaves = Change::Leaves { key: "door".to_owned() };
        assert_eq!(only_step("slot of door leaves"), Step::Cluster(leaves));
    }

    #[test]
    fn lines_can_be_for_some_servers() {
        let scenario = Scenario::parse("# A fact.\nconfig save 1\n\n[redis 7.0, valkey 8] * one\n* all\n");
        assert_eq!(scenario.config, ["save 1"]);
        let [one, all] = scenario.lines.as_slice() else { panic!("two lines") };
        assert!(one.is_for(OLD) && all.is_for(OLD) && !one.is_for(OTHER) && all.is_for(OTHER));
        assert_eq!((one.number, all.number), (4, 5));
    }

    #[test]
    fn scenarios_can_be_for_some_servers() {
        let scenario = Scenario::parse("only valkey\nwait 1");
        assert!(scenario.is_shown_by(OTHER) && !scenario.is_shown_by(OLD) && scenario.simulated);
        assert!(!Scenario::parse("not simulated\nwait 1").simulated);
    }

    #[test]
    #[should_panic(expected = "line 2 says nothing")]
    fn nonsense_is_refused() {
        Scenario::parse("wait 1\nnonsense here");
    }
}
