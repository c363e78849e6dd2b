//! `LOCK.WAITERS key [COUNT n]`

use super::info::kind_name;
use super::options::{Allowed, Options};
use super::{Inspection, LockView, Reply, Requester};
use crate::core::{LeaseEnd, MAX_WAITERS_SHOWN, UnixMs, Waiter};

/// The number of waiters that are listed without COUNT.
const DEFAULT_COUNT: usize = 100;

/// Lists the waiters of a lock in the order of their turns.
pub struct Waiters {
    /// The number of waiters to list, 1 to [`MAX_WAITERS_SHOWN`].
    count: usize,
}

impl Inspection for Waiters {
    const NAME: &str = "lock.waiters";

    const OPTIONS: Allowed = Allowed::COUNT;

    fn request(options: &Options) -> Self {
        // Any client that may read the key may use this command, and the server serves no other client during it.
        Self { count: options.count.unwrap_or(DEFAULT_COUNT).min(MAX_WAITERS_SHOWN) }
    }

    fn report<'r>(
        &self,
        view: LockView<'r, impl LeaseEnd, impl Iterator<Item = (Waiter<'r>, Requester<'r>)>>,
    ) -> Reply<'r> {
        let now = view.now;
        Reply::Array(
            view.waiters.take(self.count).map(|(waiter, requester)| describe(&waiter, requester, now)).collect(),
        )
    }
}

fn describe<'r>(waiter: &Waiter<'r>, requester: Requester<'r>, now: UnixMs) -> Reply<'r> {
    // -1 means no deadline, like the TTL of a key that does not expire.
    let remaining_ms = waiter.deadline.map_or(-1, |deadline| deadline.saturating_sub(now).max(0));
    Reply::Map(vec![
        ("token", Reply::Bytes((&*waiter.claim.owner).into())),
        ("kind", Reply::text(kind_name(waiter.claim.kind))),
        ("limit", Reply::Integer(waiter.claim.limit.map_or(0, |limit| limit.number().into()))),
        ("waited-ms", Reply::Integer(now.saturating_sub(waiter.since).max(0))),
        ("remaining-ms", Reply::Integer(remaining_ms)),
        ("client-id", Reply::Integer(requester.client)),
        ("channel", requester.channel.map_or(Reply::Nil, |channel| Reply::Bytes(channel.into()))),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Error;

    fn count(line: &str) -> Result<usize, Error> {
        Waiters::parse(line.split_whitespace().map(str::as_bytes)).map(|waiters| waiters.count)
    }

    #[test]
    fn count_is_limited_to_maximum() {
        assert_eq!(count(""), Ok(100));
        assert_eq!(count("count 1"), Ok(1));
        assert_eq!(count("COUNT 999"), Ok(999));
        for more in ["COUNT 1000", "COUNT 1001", "COUNT 9223372036854775807"] {
            assert_eq!(count(more), Ok(MAX_WAITERS_SHOWN), "{more}");
        }
        assert_eq!(count("COUNT 0"), Err(Error::NotPositive));
    }
}
