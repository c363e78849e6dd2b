//! The conditions of docs/guides/failover.md and the rules of the module, each of which can be dropped.

use super::state::Faults;

/// Lengths are in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// L, `lock.max-lease-ms`.
    pub max_lease: u8,
    /// The longest lease that is granted.
    pub longest: u8,
    /// The time without an acknowledgement after which a replica does not count: `min-replicas-max-lag` + 3 s.
    pub notice: u8,
    /// For how long an acknowledgement can be under way.
    pub ack_delay: u8,
    /// `lock.recovery-ms`.
    pub period: u8,
    /// By how much the wall clocks of two servers can differ.
    pub skew: u8,
    /// By how much a client stops before the end of its lease.
    pub margin: u8,
    /// How long a reply is under way to a client that counts from the reply. 0: it counts from the request.
    pub reply_delay: u8,
    /// A client that has counted to the end of its lease stops.
    pub stops: bool,
    /// A token is used again after the end of its hold.
    pub reuses_tokens: bool,
    /// All replicas are needed for a write, or one of them.
    pub needs_all: bool,
    /// The second replica follows the first, and not the master.
    pub is_chained: bool,
    /// The clock of a promoted server runs twice as fast.
    pub runs_fast: bool,
    /// The replicas have half of `lock.max-lease-ms`, and the period that follows from it.
    pub has_lowered: bool,
    /// The module lengthens leases in the first part of the period.
    pub lengthens_early: bool,
    /// The module grants nothing for some time after a stall.
    pub waits_after_stall: bool,
}

/// The rules without one of them.
pub struct Variant {
    pub what: &'static str,
    pub rules: Rules,
    pub faults: Faults,
}

impl Rules {
    /// All conditions hold, for this L and clocks that differ by this much.
    pub const fn all(max_lease: u8, skew: u8) -> Self {
        let (notice, ack_delay) = (1, 1);
        Self {
            max_lease,
            longest: max_lease,
            notice,
            ack_delay,
            period: max_lease + notice + ack_delay + skew,
            skew,
            margin: skew,
            reply_delay: 0,
            stops: true,
            reuses_tokens: false,
            needs_all: true,
            is_chained: false,
            runs_fast: false,
            has_lowered: false,
            lengthens_early: false,
            waits_after_stall: true,
        }
    }
}

const fn faults(promotions: u8, restarts: u8, stalls: u8) -> Faults {
    Faults { promotions, restarts, stalls }
}

/// The claim of the guide, for several combinations of faults.
pub fn claims() -> Vec<Variant> {
    let all = Rules::all(2, 0);
    let claim = |what, rules, faults| Variant { what, rules, faults };
    vec![
        claim("a promotion, a restart, a stall", all, faults(1, 1, 1)),
        claim("two promotions", all, faults(2, 0, 0)),
        claim(
            "two restarts and a stall, lock.recovery-ms = L",
            Rules { period: all.max_lease, ..all },
            faults(0, 2, 1),
        ),
        claim("a promotion, clocks that differ by 1, L = 3", Rules::all(3, 1), faults(1, 0, 0)),
    ]
}

/// The cases in which one condition, or one rule of the module, is dropped.
pub fn dropped() -> Vec<Variant> {
    let (all, skewed) = (Rules::all(2, 0), Rules::all(3, 1));
    let variant = |what, rules| Variant { what, rules, faults: faults(1, 0, 0) };
    vec![
        variant("Condition 1: a lease is longer than L", Rules { longest: all.longest + 1, ..all }),
        variant("Condition 2: one of two replicas is enough for a write", Rules { needs_all: false, ..all }),
        variant("Condition 2: one replica is attached to the other", Rules { is_chained: true, ..all }),
        variant("Condition 3: the period is L + S - 1", Rules { period: all.period - 1, ..all }),
        variant(
            "Condition 3: an acknowledgement is later than S allows",
            Rules { ack_delay: all.ack_delay + 1, ..all },
        ),
        Variant {
            what: "Condition 3, for a restart: the period is L - 1",
            rules: Rules { period: all.max_lease - 1, ..all },
            faults: faults(0, 1, 0),
        },
        variant("Condition 4: a holder counts from the reply", Rules { reply_delay: 1, ..all }),
        variant("Condition 4: a holder does not stop", Rules { stops: false, ..all }),
        variant("Condition 5: the clock of the new master runs twice as fast", Rules { runs_fast: true, ..all }),
        variant("Condition 6: clocks differ, and holders do not stop earlier", Rules { margin: 0, ..skewed }),
        variant("Condition 6: clocks differ, and the period is L + S", Rules { period: skewed.period - 1, ..skewed }),
        variant("Condition 7: a token is used again after its hold", Rules { reuses_tokens: true, ..all }),
        variant("Condition 8: the replicas have a lower L", Rules { has_lowered: true, ..all }),
        variant(
            "Module: leases are lengthened in the first part of the period",
            Rules { lengthens_early: true, ..all },
        ),
        Variant {
            what: "Module: a server grants immediately after a stall",
            rules: Rules { waits_after_stall: false, ..all },
            faults: faults(1, 0, 1),
        },
    ]
}
