//! How long it takes to let in readers that have waited together for a writer, ten of them and thousands.

use std::thread::sleep;
use std::time::{Duration, Instant};

use support::{Client, Reply, Server};

use crate::engine::ground::{Ground, LEASE, ON_TWO_CPUS, gather};
use crate::engine::{Action, Engine, Event, Locks, Orders, Workload};
use crate::progress;
use crate::protocols::Native;
use crate::section::{Bar, Effort, Row, Section, Table};
use crate::statistics::{median, median_ratio};

const FEW: usize = 10;
/// What a reader among many may take, in units of what one of [`FEW`] takes.
const MOST_SLOWER: f64 = 1.5;

const HEADINGS: [&str; 4] = ["readers", "until all are let in, ms", "per reader, µs", "per reader, against 10"];

/// Longer than all of them take.
const AT_MOST: Duration = Duration::from_secs(30);
/// Between two looks at how many wait.
const PAUSE: Duration = Duration::from_millis(1);

struct Plan {
    counts: &'static [usize],
    rounds: usize,
    /// How often the few are let in in each round: they are let in so soon that chance would show.
    times: usize,
}

pub fn measure(effort: Effort) -> Section {
    let plan = Plan {
        counts: effort.choose(&[FEW, 100, 1_000, 10_000], &[FEW, 1_000]),
        rounds: effort.choose(11, 2),
        times: effort.choose(30, 3),
    };
    let spans = plan.watch();
    Section {
        name: "share_readers",
        title: "Readers that are let in together behind one writer",
        method: method(&plan),
        table: table(&plan, &spans),
        bars: bars(&plan, &spans),
        plot: None,
    }
}

impl Plan {
    /// For each number of readers, round by round, how long it took per reader in seconds.
    fn watch(&self) -> Vec<Vec<f64>> {
        let server = Ground::for_connections(self.counts.iter().sum::<usize>() + 2).on_two_cpus();
        let mut halls: Vec<Hall> = self.counts.iter().map(|&readers| Hall::build(&server, readers)).collect();
        let mut spans = vec![Vec::new(); halls.len()];
        let progress = progress::bar("share_readers", self.rounds + 1);
        for round in 0..=self.rounds {
            for (hall, spans) in halls.iter_mut().zip(&mut spans) {
                let times = if hall.readers == FEW { self.times } else { 1 };
                let each = median((0..times).map(|_| hall.let_in().as_secs_f64() / hall.readers as f64));
                // In the first round memory and tables grow.
                if round > 0 {
                    spans.push(each);
                }
            }
            progress.inc(1);
        }
        spans
    }
}

/// Readers, and a writer.
struct Hall {
    writer: Client,
    engine: Engine,
    readers: usize,
}

impl Hall {
    fn build(server: &Server, readers: usize) -> Self {
        let engine = gather(server, &Native::SHARE, readers, Locks::Shared(readers), LEASE);
        Self { writer: server.client(), engine, readers }
    }

    /// Lets all readers wait behind the writer, and returns how long it takes from its release until each has read that it
    /// has its share. Afterwards they have given them back.
    fn let_in(&mut self) -> Duration {
        let lock = Locks::Shared(self.readers).name(0);
        let taken = self.writer.call(&["LOCK.ACQUIRE", &lock, "writer", "PX", &LEASE.to_string(), "NX"]);
        assert_eq!(taken, Reply::Int(1), "the readers have gone");
        self.engine.all(Action::Acquire);
        while support::waiters_of(&mut self.writer, &lock) < i64::try_from(self.readers).expect("a number of readers") {
            sleep(PAUSE);
        }
        let start = Instant::now();
        self.writer.send(&["LOCK.RELEASE", &lock, "writer"]);
        self.engine.run(&mut All::of(Event::Granted, self.readers), AT_MOST);
        let span = start.elapsed();
        assert_eq!(self.writer.receive(), Reply::Int(0), "the writer held the lock");
        self.engine.all(Action::Release);
        self.engine.run(&mut All::of(Event::Released, self.readers), AT_MOST);
        span
    }
}

/// Waits until something has happened to everybody.
struct All {
    event: Event,
    left: usize,
}

impl All {
    fn of(event: Event, clients: usize) -> Self {
        Self { event, left: clients }
    }
}

impl Workload for All {
    fn on(&mut self, _client: usize, event: Event, _orders: &mut Orders) {
        self.left -= usize::from(event == self.event);
    }

    fn is_done(&self) -> bool {
        self.left == 0
    }
}

fn method(plan: &Plan) -> String {
    format!(
        "Readers (LOCK.SHARE) wait while a writer (LOCK.ACQUIRE) holds the lock. The time runs from the sending of its \
         release until each reader has read its grant. Medians of {} rounds, in turns with every number of readers, and of \
         the rounds' ratios; a round lets in {FEW} readers {} times and takes the median. {ON_TWO_CPUS}",
        plan.rounds, plan.times
    )
}

fn table(plan: &Plan, spans: &[Vec<f64>]) -> Table {
    let row = |(&readers, these): (&usize, &Vec<f64>)| {
        let each = median(these.iter().copied());
        let times = spans.first().map(|few| median_ratio(these, few));
        let cells = vec![Some(each * readers as f64 * 1e3), Some(each * 1e6), times];
        Row { label: format!("LOCK.SHARE, {readers} readers"), cells }
    };
    Table::new(HEADINGS, plan.counts.iter().zip(spans).map(row).collect())
}

fn bars(plan: &Plan, spans: &[Vec<f64>]) -> Vec<Bar> {
    let (Some(few), Some(many), Some(most)) = (spans.first(), spans.last(), plan.counts.last()) else {
        return Vec::new();
    };
    let what = format!("Time per reader that is let in, {most} readers against {FEW}");
    vec![Bar::at_most(what, median_ratio(many, few), MOST_SLOWER)]
}
