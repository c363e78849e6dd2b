//! Plays a scenario on a server, real or simulated.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Reply;

use super::notified::{Notified, words};
use super::pattern::{Numbers, filled, fits, fits_reply};
use super::{Line, Scenario, Snapshot, Stage, Step, Way};

/// How often the stage is asked for what must come, and how long it waits in between, in milliseconds.
const ATTEMPTS: u32 = 2000;
const POLL_MS: u64 = 5;

/// The connection that asks for the clients that wait for messages.
const OBSERVER: &str = "observer";

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
            panic!("{}line {}: {}\n{problem}\nthen traced: {:?}", play.script, line.number, line.text, play.trace);
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
    /// The listeners of those whose message has come, by their clients.
    ended: BTreeMap<String, String>,
    /// The replies to requests that did not have to wait for a message, by their clients.
    early: BTreeMap<String, Reply>,
    /// The databases that clients have selected.
    databases: BTreeMap<String, String>,
    numbers: Numbers,
    trace: VecDeque<String>,
    replica_trace: VecDeque<String>,
    stream: VecDeque<String>,
    snapshot: Snapshot,
    /// When the last command was sent and the last reply was received.
    sent_ms: i64,
    received_ms: i64,
    /// What has been as expected.
    script: String,
}

impl<'s, S: Stage> Play<'s, S> {
    fn new(stage: &'s mut S, scenario: &'s Scenario) -> Self {
        let [trace, replica_trace, stream] = [const { VecDeque::new() }; 3];
        let now = stage.now_ms();
        Self {
            stage,
            ways: scenario.ways.iter().map(|(client, way)| (client.as_str(), *way)).collect(),
            open: BTreeSet::new(),
            notified: BTreeMap::new(),
            ended: BTreeMap::new(),
            early: BTreeMap::new(),
            databases: BTreeMap::new(),
            numbers: Numbers::new(),
            trace,
            replica_trace,
            stream,
            snapshot: Snapshot::new(),
            sent_ms: now,
            received_ms: now,
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
                self.send(client, &commands);
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
            Step::Trace(expected) => self.next_is(expected.as_ref(), |play| &mut play.trace, S::trace)?,
            Step::ReplicaTrace(expected) => {
                self.next_is(expected.as_ref(), |play| &mut play.replica_trace, S::replica_trace)?;
            }
            Step::Stream(expected) => self.next_is(expected.as_ref(), |play| &mut play.stream, S::stream)?,
            Step::Took(range) => {
                let ms = self.received_ms - self.sent_ms;
                self.compare(range, &Reply::Int(ms))?;
            }
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
            Step::Stall(ms) => self.stage.stall(*ms),
            Step::Server(runs) => self.stage.run_server(*runs),
            Step::Replica(runs) => self.stage.run_replica(*runs),
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

    fn send(&mut self, client: &str, commands: &[Vec<Vec<u8>>]) {
        for command in commands {
            if let [name, db] = command.as_slice() {
                if name == b"SELECT" {
                    self.databases.insert(client.to_owned(), String::from_utf8_lossy(db).into_owned());
                }
            }
        }
        self.sent_ms = self.stage.now_ms();
        self.stage.send(client, commands);
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
        let listener = self.notified.get(client).map_or(client, |notified| &notified.listener);
        let reply = self.stage.receive(listener);
        self.received_ms = self.stage.now_ms();
        let Some(notified) = self.notified.remove(client) else { return Ok(reply) };
        self.ended.insert(client.to_owned(), notified.listener.clone());
        notified
            .outcome(&reply, self.received_ms)
            .ok_or_else(|| format!("it is no message about this request: {reply}"))
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
            self.send(client, &commands);
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
            self.send(client, &commands);
            return Ok(());
        };
        let notified = Notified::new(client, way, request);
        self.listen(&notified, way)?;
        self.send(client, &commands);
        match self.stage.receive(client) {
            reply if reply == "WAITING" => self.notified.insert(client.to_owned(), notified).map_or((), drop),
            reply => self.early.insert(client.to_owned(), reply).map_or((), drop),
        }
        Ok(())
    }

    fn listen(&mut self, notified: &Notified, way: Way) -> Checked {
        let listener = &notified.listener;
        self.open(listener);
        for command in notified.to_listen(way) {
            self.send(listener, &[command]);
            let reply = self.stage.receive(listener);
            if reply.is_error() {
                return Err(format!("the listener receives {reply}"));
            }
        }
        Ok(())
    }

    fn check_that_waits(&mut self, client: &str) -> Checked {
        for _ in 0..ATTEMPTS {
            let waits = match self.notified.get(client).map(Notified::to_see) {
                Some(command) => {
                    self.open(OBSERVER);
                    let select = format!("SELECT {}", self.databases.get(client).map_or("0", String::as_str));
                    self.stage.send(OBSERVER, &[words(&select), command]);
                    let [_, waiters] = [(); 2].map(|()| self.stage.receive(OBSERVER));
                    self.notified.get(client).is_some_and(|notified| notified.is_in(&waiters))
                }
                None if self.early.contains_key(client) => false,
                None => self.stage.is_blocked(client),
            };
            if waits {
                return Ok(());
            }
            self.stage.wait(POLL_MS);
        }
        Err(format!("it does not wait, and receives {:?}", self.reply(client)))
    }

    fn check_that_hears_nothing(&mut self, client: &str) -> Checked {
        let waiting = self.notified.get(client).map(|notified| notified.listener.clone());
        let ear = waiting.or_else(|| self.ended.get(client).cloned()).unwrap_or_else(|| client.to_owned());
        self.stage.send(&ear, &[words("PING")]);
        let reply = self.stage.receive(&ear);
        let is_pong = reply == "PONG" || reply == Reply::list([Reply::text("pong"), Reply::text("")]);
        is_pong.then_some(()).ok_or_else(|| format!("it hears {reply}"))
    }

    /// Compares the next line of a record, for which it waits if there is to be one.
    fn next_is(
        &mut self,
        expected: Option<&String>,
        record: fn(&mut Self) -> &mut VecDeque<String>,
        news: fn(&mut S) -> Vec<String>,
    ) -> Checked {
        let mut next = None;
        for _ in 0..ATTEMPTS {
            let more = news(self.stage);
            record(self).extend(more);
            next = record(self).pop_front();
            if next.is_some() || expected.is_none() {
                break;
            }
            self.stage.wait(POLL_MS);
        }
        let fits = match (expected, &next) {
            (Some(expected), Some(next)) => fits(expected, next, &mut self.numbers),
            (expected, next) => expected.is_none() && next.is_none(),
        };
        fits.then_some(()).ok_or_else(|| format!("it is: {}", next.as_deref().unwrap_or("(nothing)")))
    }

    /// Nothing has happened that the scenario does not say.
    fn end(&mut self, has_stream: bool) -> Checked {
        self.next_is(None, |play| &mut play.trace, S::trace)?;
        self.next_is(None, |play| &mut play.replica_trace, S::replica_trace)?;
        if has_stream {
            self.next_is(None, |play| &mut play.stream, S::stream)?;
        }
        Ok(())
    }
}
