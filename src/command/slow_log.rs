//! `LOCK.SLOWLOG GET [count] | LEN | RESET`

use super::Reply;
use super::info::kind_name;
use crate::core::{Error, SlowLog, SlowWait, parse_integer};

/// The number of entries that GET lists without a count, as in the server's SLOWLOG.
const DEFAULT_COUNT: usize = 10;

/// A request to the slow log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowLogRequest {
    /// Lists the latest entries, at most this number.
    Get(usize),
    /// Returns the number of entries.
    Len,
    /// Drops all entries.
    Reset,
}

impl SlowLogRequest {
    /// The name of the command, in lower case as the server reports it.
    pub const NAME: &str = "lock.slowlog";

    /// Parses the arguments.
    ///
    /// # Errors
    ///
    /// The error to reply with if an argument is invalid, and the name of the command in its text. Like the server, this has the
    /// subcommand in it if that is known.
    pub fn parse<'a>(mut arguments: impl Iterator<Item = &'a [u8]>) -> Result<Self, (Error, &'static str)> {
        const GET: &str = "lock.slowlog|get";
        let word = arguments.next().ok_or((Error::Arity, Self::NAME))?;
        let (count, is_too_long) = (arguments.next(), arguments.next().is_some());
        let alone = |request, name| if count.is_none() { Ok(request) } else { Err((Error::Arity, name)) };
        match word {
            _ if word.eq_ignore_ascii_case(b"GET") && is_too_long => Err((Error::Arity, GET)),
            _ if word.eq_ignore_ascii_case(b"GET") => {
                let count = count.map_or(Ok(DEFAULT_COUNT), parse_count);
                count.map(Self::Get).map_err(|error| (error, GET))
            }
            _ if word.eq_ignore_ascii_case(b"LEN") => alone(Self::Len, "lock.slowlog|len"),
            _ if word.eq_ignore_ascii_case(b"RESET") => alone(Self::Reset, "lock.slowlog|reset"),
            _ => Err((Error::UnknownSubcommand, Self::NAME)),
        }
    }

    /// Returns the reply with at most `count` entries, the latest first.
    pub fn list(log: &SlowLog, count: usize) -> Reply<'_> {
        Reply::Array(log.latest().take(count).map(describe).collect())
    }
}

/// Parses a count. -1 is any number of entries.
fn parse_count(text: &[u8]) -> Result<usize, Error> {
    match parse_integer(text) {
        Some(-1) => Ok(usize::MAX),
        Some(count) => usize::try_from(count).map_err(|_| Error::CountTooLow),
        None => Err(Error::CountTooLow),
    }
}

fn describe(entry: &SlowWait) -> Reply<'_> {
    Reply::Array(vec![
        Reply::Integer(entry.id),
        Reply::Integer(entry.ended_at),
        Reply::Integer(entry.waited_ms),
        Reply::Integer(entry.db.into()),
        Reply::Bytes((&*entry.key).into()),
        Reply::Bytes((&*entry.owner).into()),
        Reply::text(kind_name(entry.kind)),
        Reply::text(entry.reason.name()),
        Reply::count(entry.others),
    ])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(line: &str) -> Result<SlowLogRequest, (Error, &'static str)> {
        SlowLogRequest::parse(line.split_whitespace().map(str::as_bytes))
    }

    #[test]
    fn subcommands_come_in_any_case() {
        assert_eq!(parse("get"), Ok(SlowLogRequest::Get(10)));
        assert_eq!(parse("GET 0"), Ok(SlowLogRequest::Get(0)));
        assert_eq!(parse("Get 128"), Ok(SlowLogRequest::Get(128)));
        assert_eq!(parse("GET -1"), Ok(SlowLogRequest::Get(usize::MAX)));
        assert_eq!(parse("len"), Ok(SlowLogRequest::Len));
        assert_eq!(parse("Reset"), Ok(SlowLogRequest::Reset));
    }

    #[test]
    fn invalid_arguments_have_errors_of_server() {
        for count in ["-2", "x", "+1", "01", "9223372036854775808"] {
            let error = parse(&format!("GET {count}")).unwrap_err().0;
            assert_eq!(error, Error::CountTooLow, "{count}");
        }
        assert_eq!(parse(""), Err((Error::Arity, "lock.slowlog")));
        assert_eq!(parse("GET x 2"), Err((Error::Arity, "lock.slowlog|get")));
        assert_eq!(parse("LEN 1"), Err((Error::Arity, "lock.slowlog|len")));
        assert_eq!(parse("RESET 1"), Err((Error::Arity, "lock.slowlog|reset")));
        assert_eq!(parse("HELP"), Err((Error::UnknownSubcommand, "lock.slowlog")));
    }

    proptest! {
        #[test]
        fn any_arguments_are_safe(words: Vec<Vec<u8>>) {
            let _ = SlowLogRequest::parse(words.iter().map(Vec::as_slice));
        }
    }
}
