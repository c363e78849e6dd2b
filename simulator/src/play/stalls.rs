//! For how long a server grants nothing: what follows from its starts, promotions and standstills, as seen from outside.

use super::CRON_MS;
use crate::checker::GrantSuspension;
use crate::step::Knob;

/// The shortest gap between two rounds of the loop that is a standstill.
const STALL_MS: i64 = 1000;

/// What is held back at least after one, whatever the settings.
const LEAST_MS: i64 = 1200;

/// How much longer than `min-replicas-max-lag`.
const MARGIN_MS: i64 = 3000;

/// What `min-replicas-max-lag` is for a module that cannot ask, in seconds.
const UNKNOWN_LAG_S: i64 = 10;

/// In what time the module has asked for it again.
const ASKED_MS: i64 = 1150;

/// At least, and at most.
type Span = (i64, i64);

/// What is known of a master: all times are those of the history.
pub(super) struct Stalls {
    /// lock.recovery-ms
    length_ms: i64,
    /// lock.max-lease-ms
    longest_ms: i64,
    /// The latest start or promotion.
    began_at: i64,
    /// When the loop turned again, with what does not count of the time since then.
    resumed_at: Option<Span>,
    /// What is set now, and what the module may take it for.
    set_lag_s: i64,
    lag_s: Span,
    is_lag_hidden: bool,
    /// When the module knows the lag that is set, if it follows it all the time.
    lag_known_at: i64,
    role: Role,
}

/// Whether a standstill matters to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Master,
    Replica,
    /// It is a master, and its loop has not turned since.
    Promoted,
}

impl Stalls {
    /// A server that starts.
    pub fn new() -> Self {
        Self {
            length_ms: 0,
            longest_ms: 0,
            began_at: 0,
            resumed_at: None,
            set_lag_s: UNKNOWN_LAG_S,
            lag_s: (UNKNOWN_LAG_S, UNKNOWN_LAG_S),
            is_lag_hidden: false,
            lag_known_at: 0,
            role: Role::Master,
        }
    }

    /// Another process is the master.
    pub fn begin(&mut self, now: i64) {
        (self.began_at, self.role, self.resumed_at) = (now, Role::Master, None);
        self.lag_known_at = now + ASKED_MS;
    }

    /// It is a replica now.
    pub fn demote(&mut self) {
        self.role = Role::Replica;
    }

    /// It is a master again.
    pub fn promote(&mut self, now: i64) {
        (self.began_at, self.role) = (now, Role::Promoted);
        self.lag_known_at = now + ASKED_MS;
    }

    /// A setting is set.
    pub fn configure(&mut self, knob: Knob, value: i64, now: i64) {
        self.settle(now);
        match knob {
            Knob::RecoveryMs => {
                if self.length_ms == 0 {
                    self.lag_known_at = now + ASKED_MS;
                }
                self.length_ms = value;
            }
            Knob::MaxLeaseMs => self.longest_ms = value,
            Knob::MaxLag if !self.is_lag_hidden => self.set_lag(value, now),
            _ => {}
        }
    }

    /// The module cannot ask for the lag any more.
    pub fn hide_lag(&mut self, now: i64) {
        self.settle(now);
        self.is_lag_hidden = true;
        self.set_lag(UNKNOWN_LAG_S, now);
    }

    fn set_lag(&mut self, lag_s: i64, now: i64) {
        self.lag_s = (self.lag_s.0.min(lag_s), self.lag_s.1.max(lag_s));
        self.lag_known_at = now + ASKED_MS;
        self.set_lag_s = lag_s;
    }

    /// The loop turns again at `now`, after so many milliseconds.
    pub fn stall(&mut self, ms: i64, now: i64) {
        // How long before it was last seen to turn is not known exactly.
        let (before, longest) = (now - ms, ms + CRON_MS);
        self.settle(before);
        self.lag_known_at += ms;
        if ms >= STALL_MS {
            self.resumed_at = Some((now, now));
            return;
        }
        let hold = self.suspension_ms();
        let turned = self.resumed_at.unwrap_or((i64::MIN / 2, i64::MIN / 2));
        // A shorter gap does not count as time to settle.
        let lost = |is_held: bool, ms: i64| if is_held { (ms - CRON_MS).max(0) } else { 0 };
        let least = turned.0 + lost(turned.0 + hold.0 > before, ms);
        let most = turned.1 + lost(turned.1 + hold.1 > before - CRON_MS, longest);
        self.resumed_at = Some((least, if longest >= STALL_MS { now } else { most }));
    }

    /// For how long nobody is granted a lock from `now` on.
    pub fn suspension(&mut self, now: i64) -> GrantSuspension {
        self.settle(now);
        if self.length_ms == 0 {
            return GrantSuspension::default();
        }
        let (hold, left) = (self.suspension_ms(), |end: i64| (end - now).max(0));
        let stall_ms = self.resumed_at.map_or((0, 0), |turned| (left(turned.0 + hold.0), left(turned.1 + hold.1)));
        let period_ms = left(self.began_at + 1 + self.length_ms);
        let has_first_part = (1..self.length_ms).contains(&self.longest_ms);
        let first_part_ms = if has_first_part { (period_ms - self.longest_ms).max(0) } else { 0 };
        GrantSuspension { period_ms, first_part_ms, stall_ms }
    }

    /// The module has shown how much remains: when it saw the latest standstill is known now.
    pub fn learn(&mut self, shown_ms: i64, now: i64) {
        if self.role == Role::Promoted {
            self.role = Role::Master;
        }
        let (least, most) = self.suspension_ms();
        let suspension = self.suspension(now);
        let Some(turned) = self.resumed_at.as_mut().filter(|_| least == most && suspension.most_ms() > 0) else {
            return;
        };
        let seen = shown_ms + now - most;
        if shown_ms > suspension.period_ms {
            *turned = (seen, seen);
        } else {
            turned.1 = turned.1.min(seen);
        }
    }

    /// For how long a standstill holds grants back.
    fn suspension_ms(&self) -> Span {
        let (least, most) = (self.lag_s.0 * 1000 + MARGIN_MS, self.lag_s.1 * 1000 + MARGIN_MS);
        match (self.length_ms, self.role) {
            (0, _) => (LEAST_MS, LEAST_MS),
            (_, Role::Replica | Role::Promoted) => (LEAST_MS, most),
            (_, Role::Master) => (least, most),
        }
    }

    /// The module has asked for the lag meanwhile.
    fn settle(&mut self, now: i64) {
        if self.length_ms > 0 && self.role == Role::Master && now >= self.lag_known_at {
            self.lag_s = (self.set_lag_s, self.set_lag_s);
        }
    }
}
