//! Server work for one share taken and given back, uncontended, in instructions.

use crate::callgrind::{self, Count, Lengths, cycles, shares};
use crate::protocols::permit_scripts::{REDIS_SEMAPHORE_ACQUIRE, REDISSON_PERMIT_ACQUIRE, REDISSON_PERMIT_RELEASE};
use crate::section::{Bar, Effort, Plot, Row, Section, Table};
use crate::sections::instructions::row;

const HEADINGS: [&str; 8] = [
    "cycle",
    "instructions per cycle",
    "repeats to, %",
    "between seeds, %",
    "x PING",
    "x ZADD + PEXPIREAT + ZREM",
    "x redis-semaphore",
    "x Redisson's permit",
];

/// Shares that others hold, where it is not the only one.
const OTHERS: u64 = 9;

const MOST_OVER_NATIVE: f64 = 1.5;
const MOST_OVER_SCRIPTS: f64 = 0.5;

struct Counts {
    ping: Count,
    native: Count,
    native_beside: Count,
    share: Count,
    permit: Count,
    share_beside: Count,
    redis_semaphore: Count,
    redisson: Count,
}

impl Counts {
    fn measure(lengths: Lengths) -> Self {
        let workloads = [
            cycles::ping(),
            shares::zadd_and_zrem(),
            shares::beside_holders(shares::zadd_and_zrem(), OTHERS),
            shares::share_and_release(),
            shares::permit_and_release(),
            shares::beside_holders(shares::permit_and_release(), OTHERS),
            shares::redis_semaphore(),
            shares::redisson_permit(),
        ];
        let counted = callgrind::counts("share_instructions", &workloads, lengths);
        let [ping, native, native_beside, share, permit, share_beside, redis_semaphore, redisson] =
            counted.try_into().expect("a count of each");
        Self { ping, native, native_beside, share, permit, share_beside, redis_semaphore, redisson }
    }

    fn table(&self) -> Table {
        let rows = [
            ("PING", &self.ping),
            ("ZADD + PEXPIREAT + ZREM", &self.native),
            ("LOCK.SHARE + LOCK.RELEASE", &self.share),
            ("LOCK.SHARE LIMIT + LOCK.RELEASE", &self.permit),
            ("redis-semaphore: EVALSHA + ZREM", &self.redis_semaphore),
            ("Redisson's permit: EVALSHA + EVALSHA", &self.redisson),
            ("ZADD + PEXPIREAT + ZREM, beside 9 other members", &self.native_beside),
            ("LOCK.SHARE LIMIT + LOCK.RELEASE, beside 9 other shares", &self.share_beside),
        ];
        Table::new(HEADINGS, rows.map(|(label, count)| self.row(label, count)).into())
    }

    fn row(&self, label: &str, count: &Count) -> Row {
        row(label, count, [&self.ping, &self.native, &self.redis_semaphore, &self.redisson])
    }

    fn bars(&self) -> Vec<Bar> {
        let at_most = |what, ours: &Count, other: &Count, limit| Bar::at_most(what, ours.over(other).mean(), limit);
        vec![
            at_most("SHARE + RELEASE, x ZADD + PEXPIREAT + ZREM", &self.share, &self.native, MOST_OVER_NATIVE),
            at_most("SHARE LIMIT + RELEASE, x redis-semaphore", &self.permit, &self.redis_semaphore, MOST_OVER_SCRIPTS),
            at_most("SHARE LIMIT + RELEASE, x Redisson's permit", &self.permit, &self.redisson, MOST_OVER_SCRIPTS),
        ]
    }
}

pub fn measure(effort: Effort) -> Section {
    let lengths = Lengths::of(effort);
    let counts = Counts::measure(lengths);
    Section {
        name: "share_instructions",
        title: "Server work for a share that is free",
        method: method(lengths),
        table: counts.table(),
        bars: counts.bars(),
        plot: Some(Plot::Bars { column: 0, logarithmic: false }),
    }
}

fn method(lengths: Lengths) -> String {
    format!(
        "Instructions per cycle, counted as for the mutex above. ZADD, PEXPIREAT and ZREM are the effects of a share and \
         its release, as somebody would write them who is never refused. {} Scripts: {}, with the ZREM that is its \
         package's release; {}; {}. Redisson's are in words of our own, which call the same commands. LIMIT is 10, and so \
         is the number of their permits.",
        lengths.difference_by_seed(),
        REDIS_SEMAPHORE_ACQUIRE.source,
        REDISSON_PERMIT_ACQUIRE.source,
        REDISSON_PERMIT_RELEASE.source,
    )
}
