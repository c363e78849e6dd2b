//! The published packages on one lock, and the Python package of this project compared with redis-py.

use std::collections::HashMap;
use std::process::Command;
use std::time::Duration;

use support::{Server, Setup, python, repository};

use crate::contest::{self, Kind, Peer, Round, Terms, grants, overlaps, release_to_grant};
use crate::protocols::scripts;
use crate::report::{Bar, Effort, Row, Section, headings};
use crate::statistics::{Durations, jain};

/// One to acquire, one for LOCK.RELEASE.
const OF_COMMANDS: f64 = 2.0;
/// The same, and one that the module sends if the machine has delayed it, for the latency monitor.
const WITH_LATENCY: f64 = 2.01;
/// The package asks again when it has received nothing for a while.
const OF_PACKAGE: f64 = 2.1;

/// The numbers of one package in all rounds.
struct Numbers {
    per_second: f64,
    overlaps: usize,
    commands: f64,
    reads: f64,
}

pub fn measure(effort: Effort) -> Section {
    let server = Setup::new().start();
    scripts::load(&mut server.client());
    let rounds = effort.choose(3, 1);
    let terms = |permits| Terms {
        processes: effort.choose(10, 4),
        clients: 1,
        permits,
        hold_ms: 1,
        length: effort.choose(Duration::from_secs(3), Duration::from_millis(500)),
        locks: vec![0],
    };
    let (mut rows, mut bars) = (Vec::new(), Vec::new());
    let mut rates = HashMap::new();
    for (peers, terms) in [(contest::one_lock(), terms(1)), (contest::two_permits(), terms(2))] {
        // The packages take turns, so that a disturbance of the machine affects all.
        let mut results: Vec<Vec<Round>> = peers.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            peers.iter().zip(&mut results).for_each(|(peer, rounds)| rounds.push(contest::run(&server, peer, &terms)));
        }
        for (peer, rounds) in peers.iter().zip(&results) {
            let suffix = if terms.permits > 1 { ", 2 permits" } else { "" };
            let (row, numbers) = numbers(peer.label, suffix, rounds, &terms);
            bars.extend(numbers.bars(peer, &row.label));
            rates.entry(peer.label).or_insert(numbers.per_second);
            rows.push(row);
        }
    }
    let ratio = rates["redis-lock-client by redis-py"] / rates["redis-py Lock"];
    bars.push(Bar::at_least("redis-lock-client, 10 processes, ratio to redis-py Lock", ratio, 0.95));
    bars.extend(python_bars(&server, effort));
    Section {
        title: "Published packages, one lock",
        method: method(&terms(1), rounds),
        headings: headings(&[
            "package",
            "acquisitions/s",
            "release to grant, p50, ms",
            "p99, ms",
            "Jain's index",
            "gave up",
            "too many holders",
            "commands",
            "round trips",
        ]),
        rows,
        bars,
    }
}

fn method(terms: &Terms, rounds: usize) -> String {
    format!(
        "{} processes with a client each want one lock, hold it for {} ms, release it and ask again without delay, in {rounds} x {:?}. \
         Packages have their defaults. *Release to grant* is the time from a release until a client that waited at that moment \
         knows that it holds the lock. *Gave up* counts attempts that ended without the lock. Commands (also in scripts) and round trips \
         are those for one acquisition and its release. The ratios of redis-lock-client are medians of five turns in one process, \
         each followed by one of redis-py's Lock.",
        terms.processes, terms.hold_ms, terms.length
    )
}

fn numbers(label: &str, suffix: &str, rounds: &[Round], terms: &Terms) -> (Row, Numbers) {
    let (mut times, mut fairness, mut per_second) = (Durations::new(), 0.0, 0.0);
    let (mut gave_up, mut too_many, mut held) = (0, 0, 0);
    let count = rounds.len() as f64;
    for Round { attempts, window, .. } in rounds {
        release_to_grant(attempts, window, &mut times);
        let grants = grants(attempts, terms.all_clients(), window);
        fairness += jain(&grants) / count;
        per_second += grants.iter().sum::<u64>() as f64 / terms.length.as_secs_f64() / count;
        gave_up += contest::gave_up(attempts);
        too_many += overlaps(attempts, terms.permits);
        held += attempts.len();
    }
    held -= gave_up;
    let per_hold = |of: fn(&Round) -> u64| rounds.iter().map(of).sum::<u64>() as f64 / held as f64;
    let commands = per_hold(|round| round.counters.commands);
    let reads = per_hold(|round| round.counters.reads);
    let version = rounds.first().map(|round| round.version.as_str()).unwrap_or_default();
    let row = Row::new(
        format!("{} {version}", label).trim_end().to_owned() + suffix,
        [
            Some(per_second),
            times.quantile_ms(0.5),
            times.quantile_ms(0.99),
            Some(fairness),
            Some(gave_up as f64),
            Some(too_many as f64),
            Some(commands),
            Some(reads),
        ],
    );
    (row, Numbers { per_second, overlaps: too_many, commands, reads })
}

impl Numbers {
    fn bars(&self, peer: &Peer, label: &str) -> Vec<Bar> {
        let (max_commands, max_reads) = match peer.kind {
            Kind::Other => return Vec::new(),
            Kind::Commands => (Some(WITH_LATENCY), OF_COMMANDS),
            Kind::Package => (None, OF_PACKAGE),
        };
        let mut bars = vec![
            Bar::at_most(format!("{label}, too many holders"), self.overlaps as f64, 0.0),
            Bar::at_most(format!("{label}, round trips"), self.reads, max_reads),
        ];
        bars.extend(max_commands.map(|limit| Bar::at_most(format!("{label}, commands"), self.commands, limit)));
        bars
    }
}

/// What bench/peers/ratios.py measures. A ratio is of acquisitions per second.
fn python_bars(server: &Server, effort: Effort) -> Vec<Bar> {
    let mut command = Command::new(python::interpreter());
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(repository().join("bench/peers/ratios.py"));
    command.arg(server.port().to_string()).arg(effort.choose("1", "0.1"));
    let output = command.output().expect("ratios.py runs");
    assert!(output.status.success(), "ratios.py: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers: HashMap<&str, f64> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, n)| Some((name, n.parse().ok()?)))
        .collect();
    let value = |name: &str| *numbers.get(name).unwrap_or_else(|| panic!("ratios.py has no {name}"));
    let ratio = |what: &str, name, limit| Bar::at_least(format!("{what}, ratio to redis-py Lock"), value(name), limit);
    let most = |what: &str, name, limit| Bar::at_most(what, value(name), limit);
    vec![
        ratio("redis-lock-client, one thread", "one-thread", 1.0),
        ratio("redis-lock-client, one asyncio task", "one-task", 1.0),
        ratio("redis-lock-client, 100 asyncio tasks with a lock each", "hundred-tasks", 1.4),
        most("threads of redis-lock-client for 150 requests with a client each", "threads", 1.0),
        most("connections of redis-lock-client for 150 requests with a client each", "connections", 1.0),
        most("redis-lock-client, percentage of a core for 2000 waiting tasks", "idle", 2.0),
    ]
}
