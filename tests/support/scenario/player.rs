//! Plays a scenario on a server, real or simulated.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Reply;

use super::notified::{Notified, words};
use super::pattern::{Numbers, filled, fits, fits_reply};
use super::{Line, Record, Scenario, Snapshot, Stage, Step, Way};

/// How often the stage is asked for what must come, and how long it waits in between, in milliseconds.
const ATTEMPTS: u32 = 2000;
const POLL_MS: u64 = 5;

/// Plays a scenario to its end.
///
/// # Panics
/// At the first line that is not as expected, with what has happened up to there.
#[track_caller]
pub fn play(stage: &mut impl Stage, scenario: &Scenario) {
    let (kind, simulated) = (stage.kind(), stage.is_simulated());
    let mut play = Play::new(stage, scenario);
    for line in scenario.lines.iter().filter(|line| line.is_for(kind, simulated)) {
        let step = catch_unwind(AssertUnwindSafe(|| play.step(&line.step)));
        if let Err(problem) = step.unwrap_or_else(|payload| Err(message_of(&*payload).to_owned())) {
            panic!("{}line {}: {}\n{problem}\nthen recorded: {:?}", play.script, line.number, line.text, play.recorded);
        }
        play.note(line);
    }
    if let Err(problem) = play.end(scenario.has_stream()) {
        panic!("{}at the end: {problem}", play.script);
    }
}

/// A description of the failure, if a step has failed.
type Checked = Result<(), String>;

/// Returns the message of a panic.
pub fn message_of(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}

struct Play<'s, S> {
    stage: &'s mut S,
    ways: BTreeMap<&'s str, Way>,
    open: BTreeSet<String>,
    /// Requests that wait for a message, by their clients.
    notified: BTreeMap<String, Notified>,
    /// The clients that receive the messages for others, also after the wait.
    listeners: BTreeMap<String, String>,
    /// The replies to requests that did not have to wait for a message, by their clients.
    early: BTreeMap<String, Reply>,
    numbers: Numbers,
    /// The lines of each record that the scenario has not read.
    recorded: BTreeMap<Record, VecDeque<String>>,
    snapshot: Snapshot,
    /// What has been as expected.
    script: String,
}

impl<'s, S: Stage> Play<'s, S> {
    fn new(stage: &'s mut S, scenario: &'s Scenario) -> Self {
        Self {
            stage,
            ways: scenario.ways.iter().map(|(client, way)| (client.as_str(), *way)).collect(),
            open: BTreeSet::new(),
            notified: BTreeMap::new(),
            listeners: BTreeMap::new(),
            early: BTreeMap::new(),
            numbers: Numbers::new(),
            recorded: BTreeMap::new(),
            snapshot: Snapshot::new(),
            script: String::new(),
        }
    }

    fn note(&mut self, line: &Line) {
        writeln!(self.script, "{:>4}  {}", line.number, line.text).expect("a string takes anything");
    }

    fn step(&mut self, step: &Step) -> Checked {
        match step {
            Step::Send { client, commands, replies } if replies == &["(waits)"] => {
                self.begin_wait(client, commands)?;
                self.check_that_waits(client)?;
            }
            Step::Send { client, commands, replies } if replies == &["(may wait)"] => {
                self.begin_wait(client, commands)?
            }
            Step::Send { client, commands, replies } => {
                let commands = self.fill(client, commands)?;
                self.stage.send(client, &commands);
                replies.iter().try_for_each(|reply| self.receive(client, reply))?;
            }
            Step::Eventually { client, command, reply } => self.eventually(client, command, reply)?,
            Step::Receive { client, reply } => self.receive(client, reply)?,
            Step::Waits { client } => self.check_that_waits(client)?,
            Step::HearsNothing { client } => self.check_that_hears_nothing(client)?,
            Step::Close { client } => {
                self.stage.close(client);
                self.open.remove(client);
            }
            Step::Recorded(record, lines) if lines.is_empty() => self.nothing_is_recorded(*record)?,
            Step::Recorded(record, lines) => lines.iter().try_for_each(|line| self.is_recorded(*record, line))?,
            Step::Now(range) => {
                let now = self.stage.now_ms();
                self.compare(range, &Reply::Int(now))?;
            }
            Step::Snapshot => self.snapshot = self.stage.snapshot(),
            Step::Unchanged => {
                let now = self.stage.snapshot();
                if now != self.snapshot {
                    return Err(format!("before: {:#?}\nnow: {now:#?}", self.snapshot));
                }
            }
            Step::Wait(ms) => self.stage.wait(*ms),
            Step::Stall(ms) => {
                self.stage.run_server(false);
                self.stage.wait(*ms);
                self.stage.run_server(true);
            }
            Step::Server(runs) => self.stage.run_server(*runs),
            Step::Cluster(change) => self.stage.change(change),
        }
        Ok(())
    }

    /// Puts numbers into commands, and opens the client's connection, if it has none.
    fn fill(&mut self, client: &str, commands: &[Vec<Vec<u8>>]) -> Result<Vec<Vec<Vec<u8>>>, String> {
        self.open(client);
        let now = self.stage.now_ms();
        self.numbers.insert("now".to_owned(), now);
        let word = |word: &Vec<u8>| match std::str::from_utf8(word) {
            Ok(text) => filled(text, &self.numbers).map(String::into_bytes),
            Err(_) => Ok(word.clone()),
        };
        commands.iter().map(|words| words.iter().map(word).collect()).collect()
    }

    fn open(&mut self, client: &str) {
        if self.open.insert(client.to_owned()) {
            let number = self.stage.open(client);
            self.numbers.insert(client.to_owned(), number);
        }
    }

    fn receive(&mut self, client: &str, expected: &str) -> Checked {
        let reply = self.reply(client)?;
        self.compare(expected, &reply)
    }

    /// Returns the next reply, or the outcome of a request that waits for a message.
    fn reply(&mut self, client: &str) -> Result<Reply, String> {
        if let Some(reply) = self.early.remove(client) {
            return Ok(reply);
        }
        let Some(notified) = self.notified.remove(client) else { return Ok(self.stage.receive(client)) };
        let message = self.stage.receive(&self.listeners[client]);
        let outcome = notified.outcome(&message, self.stage.now_ms());
        outcome.ok_or_else(|| format!("it is no message about this request: {message}"))
    }

    fn compare(&mut self, expected: &str, actual: &Reply) -> Checked {
        let now = self.stage.now_ms();
        self.numbers.insert("now".to_owned(), now);
        let fits = fits_reply(expected, actual, &mut self.numbers);
        fits.then_some(()).ok_or_else(|| format!("it is: {actual}\nnumbers: {:?}", self.numbers))
    }

    fn eventually(&mut self, client: &str, command: &[Vec<u8>], expected: &str) -> Checked {
        let mut last = Ok(());
        for _ in 0..ATTEMPTS {
            let commands = self.fill(client, &[command.to_vec()])?;
            self.stage.send(client, &commands);
            last = self.receive(client, expected);
            if last.is_ok() {
                break;
            }
            self.stage.wait(POLL_MS);
        }
        last
    }

    /// Sends a request, in the way in which the client waits.
    fn begin_wait(&mut self, client: &str, commands: &[Vec<Vec<u8>>]) -> Checked {
        let mut commands = self.fill(client, commands)?;
        let way = self.ways.get(client).copied().unwrap_or(Way::Blocked);
        let Some(request) = commands.first_mut().filter(|_| way != Way::Blocked) else {
            self.stage.send(client, &commands);
            return Ok(());
        };
        let notified = Notified::new(client, request);
        let listener = if way == Way::Pushed { client.to_owned() } else { format!("listener-of-{client}") };
        self.open(&listener);
        for command in notified.to_listen(way) {
            self.stage.send(&listener, &[command]);
            let reply = self.stage.receive(&listener);
            if reply.is_error() {
                return Err(format!("the listener receives {reply}"));
            }
        }
        self.listeners.insert(client.to_owned(), listener);
        self.stage.send(client, &commands);
        match self.stage.receive(client) {
            reply if reply == "WAITING" => self.notified.insert(client.to_owned(), notified).map_or((), drop),
            reply => self.early.insert(client.to_owned(), reply).map_or((), drop),
        }
        Ok(())
    }

    fn check_that_waits(&mut self, client: &str) -> Checked {
        if self.notified.contains_key(client) {
            return self.check_that_hears_nothing(client);
        }
        for _ in 0..ATTEMPTS {
            if self.early.contains_key(client) {
                break;
            }
            if self.stage.is_blocked(client) {
                return Ok(());
            }
            self.stage.wait(POLL_MS);
        }
        Err(format!("it does not wait, and receives {:?}", self.reply(client)))
    }

    fn check_that_hears_nothing(&mut self, client: &str) -> Checked {
        let listener = self.listeners.get(client).map_or(client, String::as_str);
        self.stage.send(listener, &[words("PING")]);
        let reply = self.stage.receive(listener);
        let is_pong = reply == "PONG" || reply == Reply::list([Reply::text("pong"), Reply::text("")]);
        is_pong.then_some(()).ok_or_else(|| format!("it hears {reply}"))
    }

    /// Compares the next line of a record, for which it waits.
    fn is_recorded(&mut self, record: Record, expected: &str) -> Checked {
        for _ in 0..ATTEMPTS {
            if let Some(line) = self.next_recorded(record) {
                let fits = fits(expected, &line, &mut self.numbers);
                return fits.then_some(()).ok_or_else(|| format!("it is: {line}"));
            }
            self.stage.wait(POLL_MS);
        }
        Err("it is: (nothing)".to_owned())
    }

    fn nothing_is_recorded(&mut self, record: Record) -> Checked {
        self.next_recorded(record).map_or(Ok(()), |line| Err(format!("it is: {line}")))
    }

    fn next_recorded(&mut self, record: Record) -> Option<String> {
        let lines = self.recorded.entry(record).or_default();
        lines.extend(self.stage.news(record));
        lines.pop_front()
    }

    /// Nothing has happened that the scenario does not say.
    fn end(&mut self, has_stream: bool) -> Checked {
        self.nothing_is_recorded(Record::Trace)?;
        self.nothing_is_recorded(Record::ReplicaTrace)?;
        if has_stream { self.nothing_is_recorded(Record::Stream) } else { Ok(()) }
    }
}
