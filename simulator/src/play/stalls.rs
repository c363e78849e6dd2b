//! How long a server suspends grants. The length follows from its starts, promotions and stalls, as an observer sees
//! them.

use super::CRON_MS;
use crate::checker::GrantSuspension;
use crate::step::Knob;

/// The shortest gap between two event-loop iterations that is a stall.
const STALL_MS: i64 = 1000;

/// The shortest suspension after a stall, for all settings.
const LEAST_MS: i64 = 1200;

/// The suspension is longer than `min-replicas-max-lag` by this margin.
const MARGIN_MS: i64 = 3000;

/// The value that the module uses for `min-replicas-max-lag` if it cannot read the setting, in seconds.
const UNKNOWN_LAG_S: i64 = 10;

/// The time after which the module has certainly read the setting again.
const ASKED_MS: i64 = 1150;

/// A least and a greatest value.
type Span = (i64, i64);

/// What an observer knows about a master. All times are those of the history.
pub(super) struct Stalls {
    /// The value of lock.recovery-ms.
    length_ms: i64,
    /// The value of lock.max-lease-ms.
    longest_ms: i64,
    /// The time of the latest start or promotion.
    began_at: i64,
    /// The time at which the loop ran again after the latest stall, plus the time since then that does not count.
    resumed_at: Option<Span>,
    /// The value of `min-replicas-max-lag`, in seconds.
    set_lag_s: i64,
    /// The least and the greatest value of it that the module may use, in seconds.
    lag_s: Span,
    is_lag_hidden: bool,
    /// The time at which the module certainly knows the setting, if it reads the setting all the time.
    lag_known_at: i64,
    role: Role,
}

/// Whether a stall matters to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Master,
    Replica,
    /// The server is a master, and its loop has not run since its promotion.
    Promoted,
}

impl Stalls {
    /// Returns the state of a server that starts.
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

    /// The server has become a replica.
    pub fn demote(&mut self) {
        self.role = Role::Replica;
    }

    /// The server has become a master again.
    pub fn promote(&mut self, now: i64) {
        (self.began_at, self.role) = (now, Role::Promoted);
        self.lag_known_at = now + ASKED_MS;
    }

    /// A setting has changed.
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

    /// The module can no longer read `min-replicas-max-lag`.
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

    /// The event loop runs again at `now`, after a stall of `ms` milliseconds.
    pub fn stall(&mut self, ms: i64, now: i64) {
        // The time of the last iteration before the stall is not known exactly.
        let (before, longest) = (now - ms, ms + CRON_MS);
        self.settle(before);
        self.lag_known_at += ms;
        if ms >= STALL_MS {
            self.resumed_at = Some((now, now));
            return;
        }
        let hold = self.suspension_ms();
        let turned = self.resumed_at.unwrap_or((i64::MIN / 2, i64::MIN / 2));
        // A gap that is shorter than a stall does not count as time after the stall.
        let lost = |is_held: bool, ms: i64| if is_held { (ms - CRON_MS).max(0) } else { 0 };
        let least = turned.0 + lost(turned.0 + hold.0 > before, ms);
        let most = turned.1 + lost(turned.1 + hold.1 > before - CRON_MS, longest);
        self.resumed_at = Some((least, if longest >= STALL_MS { now } else { most }));
    }

    /// Returns how long the server suspends grants from `now` on.
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

    /// The module has shown the rest of the suspension. From it follows when the module detected the latest stall.
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

    /// Returns how long a stall suspends grants.
    fn suspension_ms(&self) -> Span {
        let (least, most) = (self.lag_s.0 * 1000 + MARGIN_MS, self.lag_s.1 * 1000 + MARGIN_MS);
        match (self.length_ms, self.role) {
            (0, _) => (LEAST_MS, LEAST_MS),
            (_, Role::Replica | Role::Promoted) => (LEAST_MS, most),
            (_, Role::Master) => (least, most),
        }
    }

    /// The module has read `min-replicas-max-lag` again, if it had time to.
    fn settle(&mut self, now: i64) {
        if self.length_ms > 0 && self.role == Role::Master && now >= self.lag_known_at {
            self.lag_s = (self.set_lag_s, self.set_lag_s);
        }
    }
}
