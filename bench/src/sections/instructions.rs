//! The server's work for a lock or a share that no other client wants.

use support::Setup;

use crate::callgrind::{self, Count, Lengths, Workload, cycles};
use crate::protocols::{compare_and_delete, scripts};
use crate::report::{Bar, Effort, Row, Section, headings};

/// A limit for the ratio of two cycles, which are given by their positions in `cycles()`.
struct Comparison {
    what: &'static str,
    ours: usize,
    theirs: usize,
    at_most: f64,
}

const COMPARISONS: [Comparison; 5] = [
    Comparison { what: "ACQUIRE + RELEASE, x SET NX + DEL", ours: 3, theirs: 1, at_most: 1.35 },
    Comparison { what: "ACQUIRE + RELEASE, x SET NX + EVALSHA", ours: 3, theirs: 2, at_most: 0.65 },
    Comparison { what: "REENTER x 2 + RELEASE x 2, x Redisson", ours: 4, theirs: 5, at_most: 0.50 },
    Comparison { what: "SHARE + RELEASE, x ZADD + PEXPIREAT + ZREM", ours: 7, theirs: 6, at_most: 1.50 },
    Comparison { what: "SHARE LIMIT + RELEASE, x redis-semaphore", ours: 8, theirs: 9, at_most: 0.50 },
];

fn cycles() -> Vec<(&'static str, Workload)> {
    let mut cycles = vec![
        ("PING", cycles::ping()),
        ("SET NX + DEL", cycles::set_and_del()),
        ("SET NX + EVALSHA (redis-py)", cycles::set_and_script()),
        ("LOCK.ACQUIRE + LOCK.RELEASE", cycles::acquire_and_release()),
        ("LOCK.REENTER x 2 + LOCK.RELEASE x 2", cycles::reenter_and_release()),
        ("Redisson: lock x 2, unlock x 2, DEL x 2", cycles::redisson()),
        ("ZADD + PEXPIREAT + ZREM", cycles::zadd_and_zrem()),
        ("LOCK.SHARE + LOCK.RELEASE", cycles::share_and_release()),
        ("LOCK.SHARE LIMIT + LOCK.RELEASE", cycles::permit_and_release()),
        ("redis-semaphore: EVALSHA + ZREM", cycles::redis_semaphore()),
        ("ZADD + PEXPIREAT + ZREM, 9 other members", cycles::with_nine_holders(cycles::zadd_and_zrem())),
        ("LOCK.SHARE LIMIT + LOCK.RELEASE, 9 other shares", cycles::with_nine_holders(cycles::permit_and_release())),
    ];
    if let Some(command) = compare_and_delete(&mut Setup::new().start().client()) {
        let name = command.name.split(',').next().unwrap_or_default();
        cycles.push((name, cycles::of(command, "OK", "1")));
    }
    cycles
}

pub fn measure(effort: Effort) -> Section {
    let lengths = Lengths::of(effort);
    let (names, workloads): (Vec<_>, Vec<_>) = cycles().into_iter().unzip();
    let counts = callgrind::counts(&workloads, lengths);
    let percent = |share: f64| 100.0 * share;
    let row = |(name, count): (&&str, &Count)| {
        let ratio = count.over(&counts[1]).mean();
        let again = count.again().map(percent);
        Row::new(*name, [Some(count.mean()), Some(ratio), again, Some(percent(count.spread()))])
    };
    let bar = |comparison: &Comparison| {
        let ratio = counts[comparison.ours].over(&counts[comparison.theirs]);
        Bar::at_most(comparison.what, ratio.mean(), comparison.at_most)
    };
    Section {
        title: "Instructions of the server for a lock that no other client wants",
        method: method(lengths),
        headings: headings(&["cycle", "instructions", "x SET NX + DEL", "repeats to, %", "between seeds, %"]),
        rows: names.iter().zip(&counts).map(row).collect(),
        bars: COMPARISONS.iter().map(bar).collect(),
    }
}

fn method(lengths: Lengths) -> String {
    let sources: Vec<&str> = scripts::SCRIPTS.iter().map(|script| script.source).collect();
    format!("{} LIMIT is 10. Scripts: {}.", lengths.method(), sources.join("; "))
}
