//! `LOCK.INFO key`

use super::options::{Allowed, Options};
use super::{Inspection, LockView, Reply, Requester};
use crate::core::{Kind, LeaseEnd, Lock, Waiter};

/// Returns the holder of the lock, the remaining lease, and the number of waiters.
pub struct Info;

impl Inspection for Info {
    const NAME: &str = "lock.info";

    const OPTIONS: Allowed = Allowed::empty();

    fn request(_: &Options) -> Self {
        Self
    }

    fn report<'r>(
        &self,
        view: LockView<'r, impl LeaseEnd, impl Iterator<Item = (Waiter<'r>, Requester<'r>)>>,
    ) -> Reply<'r> {
        let (state, owner, holds) = match view.lock {
            Lock::Free => ("free", Reply::Nil, Reply::Integer(0)),
            Lock::Held(holder) => {
                (kind_name(holder.kind), Reply::Bytes((&*holder.owner).into()), Reply::Integer(holder.holds))
            }
            Lock::Shared(shares) => (kind_name(Kind::Shared), Reply::Nil, Reply::count(shares.held)),
        };
        let lease_ms = view.lock.lease_end().map_or(-1, |end| end.saturating_sub(view.now).max(0));
        Reply::Map(vec![
            ("state", Reply::text(state)),
            ("owner", owner),
            ("holds", holds),
            ("lease-ms", Reply::Integer(lease_ms)),
            ("waiters", Reply::count(view.waiting)),
            ("session", Reply::Array(view.session.into_iter().map(Reply::Integer).collect())),
            ("recovery-ms", Reply::Integer(view.recovery_ms)),
        ])
    }
}

/// Returns the name of a kind of lock in replies.
pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Mutex => "mutex",
        Kind::Reentrant => "reentrant",
        Kind::Shared => "shared",
    }
}
