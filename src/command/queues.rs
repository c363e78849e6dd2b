//! `LOCK.QUEUES [COUNT n]`

use super::Reply;
use super::options::{Allowed, Options};
use crate::core::{Contended, Error, MAX_QUEUES_SHOWN, UnixMs};

/// The number of locks that are listed without COUNT.
const DEFAULT_COUNT: usize = 10;

/// Lists the most contended locks of a database.
pub struct Queues {
    /// The number of locks to list, 1 to [`MAX_QUEUES_SHOWN`].
    pub count: usize,
}

impl Queues {
    /// The name of the command, in lower case as the server reports it.
    pub const NAME: &str = "lock.queues";

    /// The options that the command takes.
    pub const OPTIONS: Allowed = Allowed::COUNT;

    /// Parses the arguments.
    ///
    /// # Errors
    ///
    /// The error to reply with if an argument is invalid.
    pub fn parse<'a>(options: impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        let count = Options::parse(options, Self::OPTIONS)?.count.unwrap_or(DEFAULT_COUNT);
        if count <= MAX_QUEUES_SHOWN { Ok(Self { count }) } else { Err(Error::TooManyQueues) }
    }

    /// Returns the reply with these locks, in this order.
    pub fn report<'r>(most: &[Contended<'r>], now: UnixMs) -> Reply<'r> {
        debug_assert!(most.len() <= MAX_QUEUES_SHOWN, "too many locks are listed");
        debug_assert!(most.is_sorted_by(|one, next| one.requests >= next.requests), "the most contended comes first");
        Reply::Array(most.iter().map(|lock| describe(lock, now)).collect())
    }
}

fn describe<'r>(lock: &Contended<'r>, now: UnixMs) -> Reply<'r> {
    Reply::Map(vec![
        ("key", Reply::Bytes(lock.key.into())),
        ("waiters", Reply::count(lock.requests)),
        ("longest-wait-ms", Reply::Integer(now.saturating_sub(lock.since).max(0))),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(line: &str) -> Result<usize, Error> {
        Queues::parse(line.split_whitespace().map(str::as_bytes)).map(|queues| queues.count)
    }

    #[test]
    fn count_has_default_and_limit() {
        assert_eq!(count(""), Ok(10));
        assert_eq!(count("count 1"), Ok(1));
        assert_eq!(count("COUNT 1000"), Ok(MAX_QUEUES_SHOWN));
        assert_eq!(count("COUNT 1001"), Err(Error::TooManyQueues));
        assert_eq!(count("COUNT 9223372036854775807"), Err(Error::TooManyQueues));
        assert_eq!(count("COUNT 0"), Err(Error::NotPositive));
        assert_eq!(count("COUNT 1 COUNT 2"), Err(Error::Syntax));
        assert_eq!(count("door"), Err(Error::Syntax));
    }
}
