//! Judges windows with the linearizability tester.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

use crate::history::{Draw, LockHistory, Timed, Window, windows};
use crate::specification::fences::{self, Fences};
use crate::specification::lock::{Calls, Lock, Reply, Request, Time};

/// The steps that the search for an order may take in a window.
const BUDGET: u64 = 30_000;
/// The same, times the square of the calls: for each step the tester copies the calls that are left, and for each of them what came
/// before it.
const COPIES: u64 = 300_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Linearizable,
    /// There is no order of the calls in which each has the effect and the reply that its specification says.
    NotLinearizable,
    /// The search has not found an order, and was ended before it had tried all.
    Undecided,
}

/// The result for the locks of a file.
#[derive(Debug, Default)]
pub struct Report {
    locks: usize,
    calls: usize,
    windows: usize,
    longest: usize,
    fences: usize,
    /// Descriptions of windows for which the search was ended.
    pub undecided: Vec<String>,
    /// Descriptions of the windows that are not linearizable.
    pub failures: Vec<String>,
}

impl Report {
    pub fn add(&mut self, history: &LockHistory) {
        self.locks += 1;
        for window in windows(history) {
            self.calls += window.len();
            self.windows += 1;
            self.longest = self.longest.max(window.len());
            match judge(&window, history.forgets) {
                Verdict::Linearizable => {}
                Verdict::Undecided => self.undecided.push(describe(history, &window, "the search was ended for")),
                Verdict::NotLinearizable => self.failures.push(describe(history, &window, "no order explains")),
            }
        }
        self.fences += history.draws.len();
        if !rise(&history.draws) {
            self.failures.push(format!("{}: fencing tokens fall: {:?}", history.name, history.draws));
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { locks, calls, windows, longest, fences, undecided, failures } = self;
        write!(f, "{locks} locks, {calls} calls in {windows} windows of at most {longest}, {fences} fencing tokens: ")?;
        write!(f, "{} not linearizable, {} undecided", failures.len(), undecided.len())?;
        failures.iter().chain(undecided).try_for_each(|text| write!(f, "\n{text}"))
    }
}

/// Judges a window of a lock, which is free before it.
pub fn judge(window: &Window, forgets: bool) -> Verdict {
    let mut to_come: BTreeMap<_, Calls> = BTreeMap::new();
    for one in window.iter().filter(|one| one.reply != Some(Reply::NotHeld)) {
        let calls = to_come.entry(one.call.token).or_default();
        match one.call.request {
            Request::Acquire { .. } => calls.acquires += 1,
            _ => calls.confirmations += 1,
        }
    }
    let calls = window.len() as u64;
    let budget = Rc::new(Cell::new(BUDGET.min(COPIES / (calls * calls).max(1))));
    let known = window.iter().filter(|one| one.reply.is_some());
    let ends = known.map(|one| one.call.completed).collect();
    let lock = Lock::new(to_come, ends, forgets, Rc::clone(&budget));
    let calls = window.iter().map(|one| {
        let Timed { call, reply } = *one;
        Entry { op: call, reply, invoked: call.invoked, completed: call.completed }
    });
    let mut calls: Vec<_> = calls.collect();
    calls.sort_by_key(|call| call.completed);
    match (is_linearizable(lock, &calls), budget.get()) {
        (true, _) => Verdict::Linearizable,
        (false, 0) => Verdict::Undecided,
        (false, _) => Verdict::NotLinearizable,
    }
}

/// Whether fencing tokens rise. They are judged in parts, between which no draw is under way.
pub fn rise(draws: &[Draw]) -> bool {
    let mut draws = draws.to_vec();
    draws.sort_by_key(|draw| draw.invoked);
    let (mut parts, mut end): (Vec<Vec<Draw>>, Time) = (Vec::new(), 0);
    for draw in draws {
        match parts.last_mut().filter(|_| draw.invoked <= end) {
            Some(part) => part.push(draw),
            None => parts.push(vec![draw]),
        }
        end = end.max(draw.completed);
    }
    let mut spec = Fences::default();
    parts.iter().all(|part| {
        let calls = part.iter().map(|&Draw { invoked, completed, fence }| {
            let reply = Some(fence);
            Entry { op: fences::Draw, reply, invoked, completed }
        });
        let mut calls: Vec<_> = calls.collect();
        calls.sort_by_key(|call| call.reply);
        let rises = is_linearizable(spec, &calls);
        spec.last = part.iter().map(|draw| draw.fence).fold(spec.last, i64::max);
        rises
    })
}

/// A call for the tester.
struct Entry<S: SequentialSpec> {
    op: S::Op,
    reply: Option<S::Ret>,
    invoked: Time,
    completed: Time,
}

/// Gives calls with their replies and times to the tester, which tries them in this order first.
fn is_linearizable<S>(spec: S, calls: &[Entry<S>]) -> bool
where
    S: SequentialSpec + Clone,
    S::Op: Clone + fmt::Debug,
    S::Ret: Clone + fmt::Debug,
{
    // The tester knows threads, of which each waits for its reply, and tries those with low numbers first. Here each call has a thread.
    // At one time all invocations come before all replies, so that such calls overlap.
    let numbered = || calls.iter().enumerate();
    let invoked = numbered().map(|(number, call)| (call.invoked, false, number));
    let replied = numbered().filter(|(_, call)| call.reply.is_some());
    let replied = replied.map(|(number, call)| (call.completed, true, number));
    let mut events: Vec<(Time, bool, usize)> = invoked.chain(replied).collect();
    events.sort_unstable();
    let mut tester = LinearizabilityTester::new(spec);
    for (_, is_reply, number) in events {
        let Entry { op, reply, .. } = &calls[number];
        let noted = match reply.as_ref().filter(|_| is_reply) {
            Some(reply) => tester.on_return(number, reply.clone()),
            None => tester.on_invoke(number, op.clone()),
        };
        noted.expect("a thread has one call");
    }
    tester.is_consistent()
}

fn describe(history: &LockHistory, window: &[Timed], what: &str) -> String {
    let mut text = format!("{}: {what} these calls (times in ms)", history.name);
    for Timed { call, reply } in window {
        let [invoked, completed] = [call.invoked, call.completed].map(ms);
        let token = &history.tokens[call.token];
        let request = match call.request {
            Request::Acquire { form, limit, until, .. } => {
                let limit = limit.map_or(String::new(), |limit| format!(" of {limit}"));
                format!("acquires ({form:?}{limit}), may end at {}", ms(until))
            }
            Request::Extend { until } => format!("extends, may end at {}", ms(until)),
            Request::Release { .. } => "releases".to_owned(),
            Request::Fence => "asks whether it holds".to_owned(),
        };
        let reply = reply.map_or("unknown".to_owned(), |reply| format!("{reply:?}"));
        text += &format!("\n  {invoked:>12} to {completed:>12}  {token:8} {request}: {reply}");
    }
    text
}

fn ms(time: Time) -> String {
    if time == Time::MAX { "never".to_owned() } else { format!("{}.{:03}", time / 1000, time % 1000) }
}
