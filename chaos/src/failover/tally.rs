//! The results of all rounds, added up.

use std::fmt;

use super::fault::Fault;
use super::nodes::Topology;
use super::round::Outcome;

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
    with_overlaps: usize,
    /// Sums, and the longest times.
    total: Outcome,
}

impl Tally {
    pub fn new(topologies: &[Topology], faults: &[Fault]) -> Self {
        let row = |topology, fault| Row { topology, fault, rounds: 0, with_overlaps: 0, total: Outcome::default() };
        let each = |&topology: &Topology| faults.iter().map(move |&fault| row(topology, fault));
        Self { rows: topologies.iter().flat_map(each).collect(), repeated: 0 }
    }

    pub fn add(&mut self, topology: Topology, fault: Fault, outcome: &Outcome) {
        for row in self.rows.iter_mut().filter(|row| row.topology == topology && row.fault == fault) {
            row.rounds += 1;
            row.with_overlaps += usize::from(!outcome.overlaps.is_empty());
            let total = &mut row.total;
            total.grants += outcome.grants;
            total.grants_of_old += outcome.grants_of_old;
            total.grants_of_new += outcome.grants_of_new;
            total.put_off += outcome.put_off;
            total.until_promotion = total.until_promotion.max(outcome.until_promotion);
            total.gap = total.gap.max(outcome.gap);
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

/// A table as the documents have it.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| | fault | rounds | grants | by the old master after the fault | by the new one | TRYAGAIN | promoted within | \
             longest time without a grant | rounds with overlaps |\n|---|---|---|---|---|---|---|---|---|---|"
        )?;
        for Row { topology, fault, rounds, with_overlaps, total } in &self.rows {
            let Outcome { grants, grants_of_old, grants_of_new, put_off, .. } = total;
            let (promotion, gap) = (total.until_promotion.as_secs_f64(), total.gap.as_secs_f64());
            writeln!(
                f,
                "| {topology} | {fault} | {rounds} | {grants} | {grants_of_old} | {grants_of_new} | {put_off} | {promotion:.1} s \
                 | {gap:.1} s | {with_overlaps} |"
            )?;
        }
        writeln!(f, "Rounds that did not count, and were repeated: {}", self.repeated)
    }
}
