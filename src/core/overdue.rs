//! Overdue work: what is carried out for a lock before a request for it, so that no request overtakes a waiter, and no reply
//! confirms a lock that is about to be revoked.

use super::{Handles, HoldId};

/// What the key of a lock holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The key is empty.
    Free,
    /// A Sorted Set.
    Shared,
    /// A value of another type.
    Alone,
}

/// Overdue work of one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// Release the lock on behalf of a disconnected holder. Other work may follow.
    Revoke(HoldId),
    /// Grant the free lock to the session that lost it, or to the next waiter.
    Grant,
    /// End this session: an external write has given the lock to another holder.
    EndSession(HoldId),
    /// End the sessions of all shares: an external write has replaced them.
    EndShareSessions,
    /// Purge the expired shares, and grant the capacity to the next waiters.
    ReviewShares,
}

/// Returns the next overdue work of a lock. `is_held` returns whether the key holds the lock of a session; it is asked only if
/// that matters.
pub fn overdue(handles: &Handles, form: Form, is_held: impl FnOnce(HoldId) -> bool) -> Option<Overdue> {
    debug_assert!(handles.session.is_none() || !handles.has_share_sessions, "a lock has sessions of two kinds");
    if let Some(hold) = handles.revocation {
        return Some(Overdue::Revoke(hold));
    }
    if form == Form::Free {
        return Some(Overdue::Grant);
    }
    if let Some(session) = handles.session.filter(|session| !is_held(*session)) {
        return Some(Overdue::EndSession(session));
    }
    match form {
        Form::Shared => Some(Overdue::ReviewShares),
        _ => handles.has_share_sessions.then_some(Overdue::EndShareSessions),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::core::Id;

    fn any_handles() -> impl Strategy<Value = Handles> {
        (any::<[bool; 5]>()).prop_map(|[queue, session, revocation, has_share_sessions, has_share_revocations]| {
            Handles {
                record: Id::from_bits(1),
                queue: queue.then_some(Id::from_bits(1)),
                session: (session && !has_share_sessions).then_some(Id::from_bits(2)),
                revocation: revocation.then_some(Id::from_bits(3)),
                has_share_sessions,
                has_share_revocations,
            }
        })
    }

    proptest! {
        #[test]
        fn no_request_comes_before_overdue_work(
            handles in any_handles(),
            form in prop_oneof![Just(Form::Free), Just(Form::Shared), Just(Form::Alone)],
            is_held: bool,
        ) {
            let found = overdue(&handles, form, |session| {
                assert_eq!((Some(session), handles.revocation), (handles.session, None));
                assert_ne!(form, Form::Free, "a free lock has no holder");
                is_held
            });
            match found {
                Some(Overdue::Revoke(hold)) => prop_assert_eq!(Some(hold), handles.revocation),
                Some(Overdue::EndSession(hold)) => prop_assert!(Some(hold) == handles.session && !is_held),
                Some(Overdue::Grant) => prop_assert_eq!(form, Form::Free),
                Some(Overdue::ReviewShares) => prop_assert_eq!(form, Form::Shared),
                Some(Overdue::EndShareSessions) => prop_assert!(form == Form::Alone && handles.has_share_sessions),
                None => {
                    prop_assert!(form == Form::Alone && handles.revocation.is_none() && !handles.has_share_sessions);
                    prop_assert!(handles.session.is_none() || is_held, "a session goes on without its lock");
                }
            }
        }
    }
}
