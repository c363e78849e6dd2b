//! Playing a scenario on a server, real or simulated.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write;

use super::Flavour;
use super::pattern::{Numbers, filled, fits};
use super::scenario::{Change, Line, Scenario, Step};

/// How often the stage is asked for what must come, and how long it is to wait in between, in milliseconds.
const ATTEMPTS: u32 = 2000;
const POLL_MS: u64 = 5;

/// A server with the witness of tests/modules/witness in it.
pub trait Stage {
    fn kind(&self) -> Flavour;

    /// Opens a connection, that of `r` to the replica. Returns the server's number for it.
    fn open(&mut self, client: &str) -> i64;

    fn close(&mut self, client: &str);

    /// Sends commands in one write.
    fn send(&mut self, client: &str, commands: &[Vec<String>]);

    /// The next reply, for which it has patience, as `Reply` displays it.
    fn receive(&mut self, client: &str) -> String;

    /// The lines of the witness's trace since it was last asked.
    fn trace(&mut self) -> Vec<String>;

    /// The same of the replica's witness.
    fn replica_trace(&mut self) -> Vec<String>;

    /// The commands that replicas and the append-only file were told since it was last asked.
    fn stream(&mut self) -> Vec<String>;

    /// Now, by the server's wall clock.
    fn now_ms(&self) -> i64;

    fn wait(&mut self, ms: u64);

    /// Stops the server for so long.
    fn stall(&mut self, ms: u64);

    /// Stops the replica, or has it go on.
    fn run_replica(&mut self, runs: bool);

    /// Changes the cluster that the server is in, and returns when the server knows.
    fn change(&mut self, change: &Change);
}

/// Plays a scenario to its end.
///
/// # Panics
/// At the first line that is not as expected, with what has happened up to there.
#[track_caller]
pub fn play(stage: &mut impl Stage, scenario: &Scenario) {
    let kind = stage.kind();
    let mut play = Play::new(stage);
    for line in scenario.lines.iter().filter(|line| line.is_for(kind)) {
        play.step(line);
    }
    play.end(scenario.has_stream());
}

struct Play<'s, S> {
    stage: &'s mut S,
    open: BTreeSet<String>,
    numbers: Numbers,
    trace: VecDeque<String>,
    replica_trace: VecDeque<String>,
    stream: VecDeque<String>,
    /// What has been as expected.
    script: String,
}

impl<'s, S: Stage> Play<'s, S> {
    fn new(stage: &'s mut S) -> Self {
        let (open, numbers, script) = (BTreeSet::new(), Numbers::new(), String::new());
        let [trace, replica_trace, stream] = [const { VecDeque::new() }; 3];
        Self { stage, open, numbers, trace, replica_trace, stream, script }
    }

    #[track_caller]
    fn step(&mut self, line: &Line) {
        match &line.step {
            Step::Send { client, commands } => self.send(client, commands),
            Step::Receive { client, reply } => {
                let actual = self.stage.receive(client);
                self.compare(line, Some(reply), Some(actual));
            }
            Step::Close { client } => {
                self.stage.close(client);
                self.open.remove(client);
            }
            Step::Trace(expected) => {
                let next = self.next(expected.is_some(), |play| &mut play.trace, S::trace);
                self.compare(line, expected.as_ref(), next);
            }
            Step::ReplicaTrace(expected) => {
                let next = self.next(expected.is_some(), |play| &mut play.replica_trace, S::replica_trace);
                self.compare(line, expected.as_ref(), next);
            }
            Step::Stream(expected) => {
                let next = self.next(expected.is_some(), |play| &mut play.stream, S::stream);
                self.compare(line, expected.as_ref(), next);
            }
            Step::Wait(ms) => self.stage.wait(*ms),
            Step::Stall(ms) => self.stage.stall(*ms),
            Step::Replica(runs) => self.stage.run_replica(*runs),
            Step::Cluster(change) => self.stage.change(change),
        }
        writeln!(self.script, "{:>4}  {}", line.number, line.text).expect("a string takes anything");
    }

    fn send(&mut self, client: &str, commands: &[Vec<String>]) {
        if self.open.insert(client.to_owned()) {
            let number = self.stage.open(client);
            self.numbers.insert(client.to_owned(), number);
        }
        let now = self.stage.now_ms();
        let fill = |words: &Vec<String>| words.iter().map(|word| filled(word, &self.numbers, now)).collect();
        self.stage.send(client, &commands.iter().map(fill).collect::<Vec<_>>());
    }

    /// The next line of a record, for which it waits if there is to be one.
    fn next(
        &mut self,
        awaited: bool,
        record: fn(&mut Self) -> &mut VecDeque<String>,
        news: fn(&mut S) -> Vec<String>,
    ) -> Option<String> {
        for _ in 0..ATTEMPTS {
            let more = news(self.stage);
            record(self).extend(more);
            let next = record(self).pop_front();
            if next.is_some() || !awaited {
                return next;
            }
            self.stage.wait(POLL_MS);
        }
        None
    }

    #[track_caller]
    fn compare(&mut self, line: &Line, expected: Option<&String>, actual: Option<String>) {
        let fits = match (expected, &actual) {
            (Some(expected), Some(actual)) => fits(expected, actual, &mut self.numbers),
            (expected, actual) => expected.is_none() && actual.is_none(),
        };
        let (actual, rest) = (actual.unwrap_or_else(|| "(nothing)".to_owned()), &self.trace);
        assert!(fits, "{}line {}: {}\nbut it is: {actual}\nthen traced: {rest:?}", self.script, line.number, line.text);
    }

    /// Nothing has happened that the scenario does not tell.
    #[track_caller]
    fn end(mut self, has_stream: bool) {
        let left = self.next(false, |play| &mut play.trace, S::trace);
        assert_eq!(left, None, "{}traced at the end, and more: {:?}", self.script, self.trace);
        let left = self.next(false, |play| &mut play.replica_trace, S::replica_trace);
        assert_eq!(left, None, "{}traced by the replica at the end: {:?}", self.script, self.replica_trace);
        if has_stream {
            let left = self.next(false, |play| &mut play.stream, S::stream);
            assert_eq!(left, None, "{}replicated at the end, and more: {:?}", self.script, self.stream);
        }
    }
}
