//! What happens to the clients and the server in a history: settings, failures, changes of the role and of slots.

use redis_lock::server::WriteFence;

use super::{Dice, Operator};
use crate::step::{Change, Knob, SlotFate, Step};

impl Dice {
    /// Returns the steps that set the settings before the first client connects.
    pub(super) fn settings(&mut self, operator: Operator) -> Vec<Step> {
        let set = |knob, value| Step::Configure { knob, value };
        match operator {
            Operator::Lenient => {
                let longest = self.weighed(&[(8, 0), (1, 1000), (1, 250)]);
                if longest > 0 { vec![set(Knob::MaxLeaseMs, longest)] } else { Vec::new() }
            }
            Operator::Strict => {
                let lag = self.weighed(&[(12, Some(0)), (6, Some(1)), (1, Some(10)), (1, None)]);
                let lag = lag.map_or(Step::HideSettings, |lag| set(Knob::MaxLag, lag));
                // The recovery period is often as long as the longest lease, as the documents recommend.
                let (recovery, longest) = self.one_of(&[(300, 250), (1200, 1000), (300, 0), (1200, 0), (60, 0)]);
                vec![lag, set(Knob::RecoveryMs, recovery), set(Knob::MaxLeaseMs, longest)]
            }
        }
    }

    /// Returns a step that changes a setting.
    fn knob(&mut self) -> Step {
        let is_strict = matches!(self.operator, Operator::Strict);
        if is_strict && self.percent(60) { self.recovery_knob() } else { self.common_knob() }
    }

    /// Returns a step that changes a setting for the recovery period.
    fn recovery_knob(&mut self) -> Step {
        let (knob, value) = self.one_of(&[
            (Knob::RecoveryMs, 0),
            (Knob::RecoveryMs, 100),
            (Knob::RecoveryMs, 500),
            (Knob::RecoveryMs, 1500),
            (Knob::MaxLeaseMs, 0),
            (Knob::MaxLeaseMs, 200),
            (Knob::MaxLeaseMs, 1000),
            (Knob::MaxLag, 0),
            (Knob::MaxLag, 1),
        ]);
        Step::Configure { knob, value }
    }

    /// Returns a step that changes a limit.
    fn common_knob(&mut self) -> Step {
        let (knob, value) = self.one_of(&[
            (Knob::MaxWaiters, 100_000),
            (Knob::MaxWaiters, 4),
            (Knob::MaxBlockMs, 0),
            (Knob::MaxBlockMs, 50),
            (Knob::RejoinGraceMs, 200),
            (Knob::RejoinGraceMs, 0),
            (Knob::MaxSessions, 100_000),
            (Knob::MaxSessions, 2),
        ]);
        Step::Configure { knob, value }
    }

    /// Returns a step that interferes with clients or keys.
    pub(super) fn disturbance(&mut self) -> Step {
        let kind: fn(&mut Self) -> Step = self.weighed(&[
            (4, |dice| Step::Kill { client: dice.client(), victim: dice.victim() }),
            (4, |dice| Step::Unblock { client: dice.client(), victim: dice.victim(), with_error: dice.percent(50) }),
            (2, |dice| Step::Quit(dice.client())),
            (1, |dice| Step::CutOff { first: dice.client(), count: dice.within(2, 9) as u8 }),
            (1, |dice| Step::Subscribe { client: dice.client(), channel: dice.channel() }),
            (1, |dice| Step::Unsubscribe { client: dice.client(), channel: dice.channel() }),
            (1, |dice| Step::Select { client: dice.client(), db: dice.within(0, 2) as u8 }),
            (3, |dice| Step::Expire(dice.within(1, 4) as u8)),
        ]);
        kind(self)
    }

    /// Returns a step that changes the server: its clock, role, slots or settings.
    pub(super) fn environment(&mut self) -> Step {
        let kind: fn(&mut Self) -> Step = self.weighed(&[
            (3, |dice| Step::Stall {
                ms: dice.within(1, 3000) as u16,
                change: dice.weighed(&[(2, Change::Nothing), (1, Change::NoReplicas), (1, Change::Replaced)]),
            }),
            (1, |dice| Step::SetClock(dice.within(-300, 300) as i16)),
            (3, |dice| Step::Pause(dice.within(1, 300) as u16)),
            (3, |dice| {
                let fences = [(3, None), (1, Some(WriteFence::NoReplicas)), (1, Some(WriteFence::Disk))];
                Step::Fence(dice.weighed(&fences))
            }),
            (3, |dice| Step::Replicate(dice.within(1, 20) as u8)),
            (2, |dice| Step::FailOver { planned: dice.percent(50) }),
            (1, |dice| Step::Restart { has_log: !dice.percent(20) }),
            (2, Self::knob),
            (2, |dice| Step::Evict(dice.lock())),
            (1, |dice| Step::Demote(dice.within(1, 300) as u16)),
            (5, |dice| Step::Slot {
                lock: dice.lock(),
                fate: dice.weighed(&[(3, SlotFate::Returns), (4, SlotFate::Leaves), (1, SlotFate::Migrates)]),
            }),
            (1, |dice| Step::ClusterDown(dice.percent(50))),
        ]);
        kind(self)
    }
}
