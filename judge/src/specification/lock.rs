//! The specification of one lock: a mutex, a re-entrant lock, or shares up to a limit.
//!
//! A lease ends without an operation. So each call has the span in which it took effect, and the specification has a
//! clock: the earliest time at which the calls so far can have taken effect in this order. A holder goes when another
//! call needs the lock, and not before the time from which its hold may have ended. To let holders go as late as
//! possible, and the clock advance as little as possible, allows every order that any other choice allows.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use stateright::semantics::SequentialSpec;

/// Microseconds since the start of the run.
pub type Time = u64;
pub type Token = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A mutex, or a re-entrant lock.
    Exclusive,
    Share,
}

/// A request with the span in which it took effect.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub token: Token,
    pub invoked: Time,
    pub completed: Time,
    pub request: Request,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// `until`: the hold may end from this time on.
    Acquire {
        form: Form,
        limit: Option<usize>,
        hold: Option<u64>,
        until: Time,
    },
    Extend {
        until: Time,
    },
    Release {
        hold: Option<u64>,
    },
    /// A request that only a holder can make.
    Fence,
}

impl Request {
    /// Returns from when on the hold may have ended that this request begins or sets a lease for.
    pub fn until(&self) -> Option<Time> {
        match self {
            Self::Acquire { until, .. } | Self::Extend { until } => Some(*until),
            _ => None,
        }
    }
}

/// The replies that say something about the holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The token holds the lock. For a re-entrant lock this is the number of its holds.
    Held(Option<u64>),
    /// The token has released one hold, and has this number left.
    Left(u64),
    NotHeld,
}

#[derive(Clone, Debug)]
struct Holder {
    token: Token,
    form: Form,
    /// `None` if a call with an unknown outcome may have changed it.
    holds: Option<u64>,
    until: Time,
}

/// The calls of a token that are to come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calls {
    pub acquires: usize,
    /// Calls that succeed only if the token holds the lock.
    pub confirmations: usize,
}

#[derive(Clone, Debug)]
pub struct Lock {
    now: Time,
    holders: Vec<Holder>,
    to_come: BTreeMap<Token, Calls>,
    /// The times by which the other calls have taken effect, the latest first.
    ends: Vec<Time>,
    /// The server may have forgotten a grant: a client that is refused has lost the lock.
    forgets: bool,
    /// The number of steps that the search may still take.
    budget: Rc<Cell<u64>>,
}

impl Lock {
    pub fn new(to_come: BTreeMap<Token, Calls>, mut ends: Vec<Time>, forgets: bool, budget: Rc<Cell<u64>>) -> Self {
        ends.sort_unstable_by(|one, other| other.cmp(one));
        Self { now: 0, holders: Vec::new(), to_come, ends, forgets, budget }
    }

    /// Lets a call with this reply take effect. Returns false if it cannot at this point of the order.
    fn apply(&mut self, call: &Call, reply: Reply) -> bool {
        self.now = self.now.max(call.invoked);
        let place = self.holders.iter().position(|holder| holder.token == call.token);
        let is_valid = match (call.request, reply) {
            (_, Reply::NotHeld) => place.is_none_or(|place| self.forgets || self.remove(place, call.completed)),
            (Request::Acquire { form, limit, hold, until }, Reply::Held(holds)) => {
                let new = Holder { token: call.token, form, holds, until };
                match place {
                    Some(place) if self.repeats(place, hold, &new) => true,
                    Some(place) => {
                        is_first(hold, holds) && self.remove(place, call.completed) && self.add(new, limit, call)
                    }
                    None => is_first(hold, holds) && self.add(new, limit, call),
                }
            }
            (Request::Extend { until }, Reply::Held(_)) => {
                place.inspect(|&place| self.holders[place].until = until).is_some()
            }
            (Request::Release { hold }, Reply::Left(left)) => {
                place.is_some_and(|place| self.release(place, hold, left))
            }
            (Request::Fence, Reply::Held(_)) => place.is_some(),
            _ => false,
        };
        if self.forgets && reply == Reply::NotHeld {
            self.holders.retain(|holder| holder.token != call.token);
        }
        let to_come = self.to_come.entry(call.token).or_default();
        let count = match call.request {
            Request::Acquire { .. } => &mut to_come.acquires,
            _ => &mut to_come.confirmations,
        };
        *count = count.saturating_sub(usize::from(reply != Reply::NotHeld));
        let place = self.ends.iter().rposition(|end| *end == call.completed);
        if let Some(place) = place {
            self.ends.remove(place);
        }
        // If it is too late for any other call, too, this is the wrong order.
        is_valid && self.now <= call.completed && self.ends.last().is_none_or(|end| self.now <= *end)
    }

    /// A request of a holder for the lock that it has, which lengthens the lease, or takes one more hold.
    fn repeats(&mut self, place: usize, hold: Option<u64>, new: &Holder) -> bool {
        let holder = &mut self.holders[place];
        let counts = match (holder.holds, new.holds) {
            (Some(before), Some(now)) => now == before + 1 || hold == Some(now) && now == before,
            _ => true,
        };
        let fits = holder.form == new.form && counts;
        if fits {
            (holder.holds, holder.until) = (new.holds, holder.until.max(new.until));
        }
        fits
    }

    fn release(&mut self, place: usize, hold: Option<u64>, left: u64) -> bool {
        let holder = &mut self.holders[place];
        let fits = holder.holds.is_none_or(|before| before == left + 1 || hold == Some(left + 1) && before == left);
        holder.holds = holder.holds.map(|_| left);
        if left == 0 {
            self.holders.remove(place);
        }
        fits
    }

    fn add(&mut self, new: Holder, limit: Option<usize>, call: &Call) -> bool {
        let excludes = |holder: &Holder| new.form == Form::Exclusive || holder.form == Form::Exclusive;
        while let Some(place) = self.holders.iter().position(excludes) {
            if !self.remove(place, call.completed) {
                return false;
            }
        }
        while limit.is_some_and(|limit| self.holders.len() >= limit) {
            let places = (0..self.holders.len()).filter(|place| self.may_be_removed(*place, call.completed));
            let Some(place) = places.min_by_key(|place| self.holders[*place].until) else { return false };
            self.remove(place, call.completed);
        }
        self.holders.push(new);
        true
    }

    /// Whether the hold can have ended by a time. A token that is never granted the lock again, and later proves that
    /// it holds it, has kept it.
    fn may_be_removed(&self, place: usize, by: Time) -> bool {
        let holder = &self.holders[place];
        let to_come = self.to_come.get(&holder.token).copied().unwrap_or_default();
        let is_kept = to_come.confirmations > 0 && to_come.acquires == 0;
        !is_kept && holder.until <= by
    }

    fn remove(&mut self, place: usize, by: Time) -> bool {
        let may_be_removed = self.may_be_removed(place, by);
        if may_be_removed {
            let holder = self.holders.remove(place);
            self.now = self.now.max(holder.until);
        }
        may_be_removed
    }
}

/// Whether a grant of a free lock can have these holds.
fn is_first(hold: Option<u64>, holds: Option<u64>) -> bool {
    hold.is_none_or(|hold| hold == 1) && holds.is_none_or(|holds| holds == 1)
}

impl SequentialSpec for Lock {
    type Op = Call;
    type Ret = Reply;

    /// A call without a reply, which takes effect if it can. Only requests for the lock are such calls.
    fn invoke(&mut self, call: &Call) -> Reply {
        let before = self.clone();
        if self.apply(call, Reply::Held(None)) {
            return Reply::Held(None);
        }
        *self = before;
        Reply::NotHeld
    }

    fn is_valid_step(&mut self, call: &Call, reply: &Reply) -> bool {
        let left = self.budget.get();
        self.budget.set(left.saturating_sub(1));
        left > 0 && self.apply(call, *reply)
    }
}
