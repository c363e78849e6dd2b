//! What the rounds of a run showed, added up.

use std::fmt;
use std::time::Duration;

use crate::fault::Fault;
use crate::round::Outcome;
use crate::scene::Topology;

/// All rounds of a run.
#[derive(Default)]
pub struct Tally {
    rows: Vec<Row>,
    pub repeated: usize,
}

/// The rounds with one fault.
struct Row {
    topology: Topology,
    fault: Fault,
    rounds: usize,
    grants: usize,
    grants_of_old: usize,
    grants_of_new: usize,
    put_off: u64,
    promotion: Duration,
    gap: Duration,
    with_overlaps: usize,
}

impl Tally {
    pub fn new(topologies: &[Topology], faults: &[Fault]) -> Self {
        let each = |&topology: &Topology| faults.iter().map(move |&fault| Row::new(topology, fault));
        Self { rows: topologies.iter().flat_map(each).collect(), repeated: 0 }
    }

    pub fn add(&mut self, topology: Topology, fault: Fault, outcome: &Outcome) {
        let row = self.rows.iter_mut().find(|row| row.topology == topology && row.fault == fault);
        if let Some(row) = row {
            row.add(outcome);
        }
    }

    /// How many rounds count.
    pub fn rounds(&self) -> usize {
        self.rows.iter().map(|row| row.rounds).sum()
    }

    /// In how many rounds of a topology there were overlaps.
    pub fn with_overlaps(&self, topology: Topology) -> usize {
        self.rows.iter().filter(|row| row.topology == topology).map(|row| row.with_overlaps).sum()
    }
}

impl Row {
    fn new(topology: Topology, fault: Fault) -> Self {
        Self {
            topology,
            fault,
            rounds: 0,
            grants: 0,
            grants_of_old: 0,
            grants_of_new: 0,
            put_off: 0,
            promotion: Duration::ZERO,
            gap: Duration::ZERO,
            with_overlaps: 0,
        }
    }

    fn add(&mut self, outcome: &Outcome) {
        self.rounds += 1;
        self.grants += outcome.grants;
        self.grants_of_old += outcome.grants_of_old;
        self.grants_of_new += outcome.grants_of_new;
        self.put_off += outcome.put_off;
        self.promotion = self.promotion.max(outcome.until_promotion);
        self.gap = self.gap.max(outcome.gap);
        self.with_overlaps += usize::from(!outcome.overlaps.is_empty());
    }
}

/// A table as the documents have it.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| | fault | rounds | grants | by the old master after the fault | by the new one | TRYAGAIN | promoted within | \
             longest time without a grant | rounds with overlaps |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|---|---|")?;
        for row in &self.rows {
            let Row { topology, fault, rounds, grants, grants_of_old, grants_of_new, put_off, .. } = row;
            let (promotion, gap, found) = (row.promotion.as_secs_f64(), row.gap.as_secs_f64(), row.with_overlaps);
            writeln!(
                f,
                "| {topology} | {fault} | {rounds} | {grants} | {grants_of_old} | {grants_of_new} | {put_off} | {promotion:.1} s \
                 | {gap:.1} s | {found} |"
            )?;
        }
        writeln!(f, "Rounds that did not count, and were repeated: {}", self.repeated)
    }
}
