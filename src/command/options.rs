//! The option parser of all commands: `[EX s | PX ms] [BLOCK ms] [NX] [SESSION [GRACE ms]] [HOLD n] [LIMIT n] [ADD] [COUNT n]
//! [NOTIFY channel] [MAXWAITERS n]`.
//!
//! Options come in any order and case, each at most once.

use bitflags::bitflags;

use super::Parsed;
use crate::core::{
    Action, BlockTimeout, Error, HoldNumber, Lease, Limit, MAX_CHANNEL_LEN, MAX_DURATION_MS, MIN_SESSION_LEASE_MS,
    Request, parse_integer,
};

bitflags! {
    /// The options that a command takes. EX and PX are two forms of one of them.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct Allowed: u16 {
        const LEASE = 1 << 0;
        const BLOCK = 1 << 1;
        const NX = 1 << 2;
        const ADD = 1 << 3;
        const COUNT = 1 << 4;
        const HOLD = 1 << 5;
        const SESSION = 1 << 6;
        const NOTIFY = 1 << 7;
        const LIMIT = 1 << 8;
        const GRACE = 1 << 9;
        const MAX_WAITERS = 1 << 10;
        /// The options of all commands that take a lock.
        const TAKING = Self::LEASE.bits() | Self::BLOCK.bits() | Self::SESSION.bits() | Self::GRACE.bits()
            | Self::NOTIFY.bits() | Self::MAX_WAITERS.bits();
    }
}

/// Parsed options, whose values have been checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub lease: Option<Lease>,
    pub block: Option<BlockTimeout>,
    pub nx: bool,
    pub hold: Option<HoldNumber>,
    pub limit: Option<Limit>,
    pub add: bool,
    /// Whether SESSION was given. Then the lease is at least [`MIN_SESSION_LEASE_MS`].
    pub session: bool,
    /// The value of GRACE. Then SESSION was given, too, with a lease that is at least as long.
    pub grace: Option<Lease>,
    /// The value of MAXWAITERS. Then BLOCK was given, too.
    pub max_waiters: Option<Limit>,
    /// The value of COUNT, at least 1.
    pub count: Option<usize>,
    /// The number of the word with the channel, if NOTIFY was given. Then a lease and BLOCK were given, too.
    pub notify: Option<usize>,
}

#[derive(Clone, Copy)]
enum Word {
    Ex,
    Px,
    Block,
    Nx,
    Add,
    Count,
    Hold,
    Limit,
    Session,
    Grace,
    Notify,
    MaxWaiters,
}

impl Options {
    /// Parses options, which may be any bytes, and stops at the first mistake.
    ///
    /// # Errors
    ///
    /// - [`Error::Syntax`] if an option is unknown, repeated, not in `allowed`, or lacks its value.
    /// - [`Error::NotAnInteger`], [`Error::NotPositive`], [`Error::InvalidExpire`] or a time-out error if a value is
    ///   invalid.
    /// - [`Error::NotifyNeedsWait`] if NOTIFY comes without BLOCK or without a lease, and [`Error::ChannelLength`] if its
    ///   channel is empty or too long.
    /// - [`Error::SessionNeedsLease`] if SESSION comes without EX or PX, and [`Error::InvalidExpire`] if their lease is
    ///   too short for it.
    /// - [`Error::GraceNeedsSession`] if GRACE comes without SESSION, and [`Error::InvalidExpire`] if it is longer than the
    ///   lease.
    /// - [`Error::MaxWaitersNeedsBlock`] if MAXWAITERS comes without BLOCK.
    pub fn parse<'a>(words: impl Iterator<Item = &'a [u8]>, allowed: Allowed) -> Result<Self, Error> {
        let mut options = Self::default();
        let mut left = allowed;
        let mut words = words.enumerate();
        while let Some((_, text)) = words.next() {
            let word = Word::read(text).ok_or(Error::Syntax)?;
            if !left.contains(word.option()) {
                return Err(Error::Syntax);
            }
            left.remove(word.option());
            let mut argument = || words.next().ok_or(Error::Syntax);
            let mut value = || argument().map(|(_, value)| value);
            match word {
                Word::Ex => options.lease = Some(seconds(value()?)?),
                Word::Px => options.lease = Some(milliseconds(value()?)?),
                Word::Block => options.block = Some(timeout(value()?)?),
                Word::Count => options.count = Some(count(value()?)?),
                Word::Hold => options.hold = Some(hold_number(value()?)?),
                Word::Limit => options.limit = Some(limit(value()?)?),
                Word::Grace => options.grace = Some(milliseconds(value()?)?),
                Word::MaxWaiters => options.max_waiters = Some(limit(value()?)?),
                Word::Session => options.session = true,
                Word::Notify => options.notify = Some(channel(argument()?)?),
                Word::Nx => options.nx = true,
                Word::Add => options.add = true,
            }
        }
        if options.notify.is_some() && (options.block.is_none() || options.lease.is_none()) {
            return Err(Error::NotifyNeedsWait);
        }
        if options.max_waiters.is_some() && options.block.is_none() {
            return Err(Error::MaxWaitersNeedsBlock);
        }
        if options.session {
            let lease = options.lease.ok_or(Error::SessionNeedsLease)?;
            let least = options.grace.max(Lease::from_ms(MIN_SESSION_LEASE_MS));
            return if Some(lease) < least { Err(Error::InvalidExpire) } else { Ok(options) };
        }
        if options.grace.is_some() { Err(Error::GraceNeedsSession) } else { Ok(options) }
    }

    /// Returns the request for this action with these options.
    #[inline(always)]
    pub fn parsed(&self, action: Action) -> Parsed {
        let Self { lease, session, grace, block, max_waiters, notify, .. } = *self;
        debug_assert!(lease.is_some() || !session && notify.is_none(), "SESSION and NOTIFY need a lease");
        Parsed { request: Request { action, lease, session, grace, wait: block, max_waiters }, notify }
    }
}

impl Word {
    fn read(text: &[u8]) -> Option<Self> {
        // The most frequent words come first.
        Some(match text {
            _ if text.eq_ignore_ascii_case(b"PX") => Self::Px,
            _ if text.eq_ignore_ascii_case(b"EX") => Self::Ex,
            _ if text.eq_ignore_ascii_case(b"BLOCK") => Self::Block,
            _ if text.eq_ignore_ascii_case(b"NX") => Self::Nx,
            _ if text.eq_ignore_ascii_case(b"HOLD") => Self::Hold,
            _ if text.eq_ignore_ascii_case(b"LIMIT") => Self::Limit,
            _ if text.eq_ignore_ascii_case(b"SESSION") => Self::Session,
            _ if text.eq_ignore_ascii_case(b"NOTIFY") => Self::Notify,
            _ if text.eq_ignore_ascii_case(b"ADD") => Self::Add,
            _ if text.eq_ignore_ascii_case(b"COUNT") => Self::Count,
            _ if text.eq_ignore_ascii_case(b"GRACE") => Self::Grace,
            _ if text.eq_ignore_ascii_case(b"MAXWAITERS") => Self::MaxWaiters,
            _ => return None,
        })
    }

    fn option(self) -> Allowed {
        match self {
            Self::Ex | Self::Px => Allowed::LEASE,
            Self::Block => Allowed::BLOCK,
            Self::Nx => Allowed::NX,
            Self::Add => Allowed::ADD,
            Self::Count => Allowed::COUNT,
            Self::Hold => Allowed::HOLD,
            Self::Limit => Allowed::LIMIT,
            Self::Session => Allowed::SESSION,
            Self::Grace => Allowed::GRACE,
            Self::MaxWaiters => Allowed::MAX_WAITERS,
            Self::Notify => Allowed::NOTIFY,
        }
    }
}

fn seconds(text: &[u8]) -> Result<Lease, Error> {
    let seconds = parse_integer(text).ok_or(Error::NotAnInteger)?;
    seconds.checked_mul(1000).and_then(Lease::from_ms).ok_or(Error::InvalidExpire)
}

fn milliseconds(text: &[u8]) -> Result<Lease, Error> {
    parse_integer(text).ok_or(Error::NotAnInteger).and_then(|ms| Lease::from_ms(ms).ok_or(Error::InvalidExpire))
}

fn timeout(text: &[u8]) -> Result<BlockTimeout, Error> {
    match parse_integer(text).ok_or(Error::TimeoutNotAnInteger)? {
        ..0 => Err(Error::TimeoutNegative),
        0 => Ok(BlockTimeout::Forever),
        ms @ 1..=MAX_DURATION_MS => Ok(BlockTimeout::Ms(ms)),
        _ => Err(Error::TimeoutOutOfRange),
    }
}

fn channel((number, name): (usize, &[u8])) -> Result<usize, Error> {
    if (1..=MAX_CHANNEL_LEN).contains(&name.len()) { Ok(number) } else { Err(Error::ChannelLength) }
}

fn count(text: &[u8]) -> Result<usize, Error> {
    let count = parse_integer(text).ok_or(Error::NotAnInteger)?;
    usize::try_from(count).ok().filter(|&count| count > 0).ok_or(Error::NotPositive)
}

fn hold_number(text: &[u8]) -> Result<HoldNumber, Error> {
    parse_integer(text).ok_or(Error::NotAnInteger).and_then(|n| HoldNumber::from_number(n).ok_or(Error::NotPositive))
}

fn limit(text: &[u8]) -> Result<Limit, Error> {
    match parse_integer(text).ok_or(Error::NotAnInteger)? {
        ..=0 => Err(Error::NotPositive),
        number => Limit::from_number(number).ok_or(Error::NotAnInteger),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(line: &str, allowed: Allowed) -> Result<Options, Error> {
        let words: Vec<&[u8]> = line.split(' ').filter(|word| !word.is_empty()).map(str::as_bytes).collect();
        Options::parse(words.into_iter(), allowed)
    }

    #[test]
    fn options_come_in_any_order_and_case() {
        let expected =
            Options { lease: Lease::from_ms(2000), block: Some(BlockTimeout::Ms(5)), nx: true, ..Options::default() };
        for line in ["EX 2 BLOCK 5 NX", "nx block 5 ex 2", "Block 5 pX 2000 Nx"] {
            assert_eq!(parse(line, Allowed::all()), Ok(expected), "{line}");
        }
        assert_eq!(parse("", Allowed::empty()), Ok(Options::default()));
    }

    #[test]
    fn bad_options_are_syntax_errors() {
        for line in [
            "PX 1 PX 1",
            "EX 1 PX 1",
            "NX nx",
            "BLOCK 1 BLOCK 2",
            "ADD ADD",
            "HOLD 1 HOLD 1",
            "LIMIT 1 LIMIT 1",
            "LIMIT",
            "HOLD",
            "PX 1 SESSION SESSION",
            "PX",
            "NXX",
            "NOTIFY",
            "GRACE",
            "PX 200 SESSION GRACE 1 GRACE 1",
            "MAXWAITERS",
            "BLOCK 1 MAXWAITERS 1 MAXWAITERS 2",
            "PX 1 BLOCK 1 NOTIFY c NOTIFY c",
        ] {
            assert_eq!(parse(line, Allowed::all()), Err(Error::Syntax), "{line}");
        }
        assert_eq!(parse("NX", Allowed::LEASE | Allowed::BLOCK), Err(Error::Syntax));
    }

    #[test]
    fn invalid_values_have_errors_of_server() {
        for (line, error) in [
            ("PX 0", Error::InvalidExpire),
            ("PX -1", Error::InvalidExpire),
            ("EX 9223372036854775807", Error::InvalidExpire),
            ("PX 9223372036854775807", Error::InvalidExpire),
            ("PX 9223372036854775808", Error::NotAnInteger),
            ("PX NX", Error::NotAnInteger),
            ("BLOCK x", Error::TimeoutNotAnInteger),
            ("BLOCK -1", Error::TimeoutNegative),
            ("BLOCK 9223372036854775807", Error::TimeoutOutOfRange),
            ("COUNT 0", Error::NotPositive),
            ("COUNT -3", Error::NotPositive),
            ("COUNT many", Error::NotAnInteger),
            ("SESSION", Error::SessionNeedsLease),
            ("NOTIFY c", Error::NotifyNeedsWait),
            ("PX 1 NOTIFY c", Error::NotifyNeedsWait),
            ("BLOCK 1 NOTIFY c", Error::NotifyNeedsWait),
            ("HOLD 0", Error::NotPositive),
            ("HOLD -1", Error::NotPositive),
            ("HOLD 1x", Error::NotAnInteger),
            ("LIMIT 0", Error::NotPositive),
            ("LIMIT -1", Error::NotPositive),
            ("LIMIT x", Error::NotAnInteger),
            ("LIMIT 2147483648", Error::NotAnInteger),
            ("PX 200 SESSION GRACE 0", Error::InvalidExpire),
            ("PX 200 SESSION GRACE 201", Error::InvalidExpire),
            ("PX 200 SESSION GRACE x", Error::NotAnInteger),
            ("PX 200 GRACE 100", Error::GraceNeedsSession),
            ("BLOCK 1 MAXWAITERS 0", Error::NotPositive),
            ("BLOCK 1 MAXWAITERS x", Error::NotAnInteger),
            ("BLOCK 1 MAXWAITERS 2147483648", Error::NotAnInteger),
            ("MAXWAITERS 1", Error::MaxWaitersNeedsBlock),
        ] {
            assert_eq!(parse(line, Allowed::all()), Err(error), "{line}");
        }
    }

    #[test]
    fn channel_is_found_at_any_position() {
        let find = |line| parse(line, Allowed::all()).unwrap().notify;
        assert_eq!(find("NOTIFY c PX 1 BLOCK 1"), Some(1));
        assert_eq!(find("px 1 notify NOTIFY block 1"), Some(3));
        assert_eq!(find("PX 1 BLOCK 1"), None);
        let parse = |channel: &[u8]| {
            Options::parse([b"PX".as_slice(), b"1", b"BLOCK", b"0", b"NOTIFY", channel].into_iter(), Allowed::all())
        };
        assert_eq!(parse(b"").err(), Some(Error::ChannelLength));
        assert_eq!(parse(&[b'x'; MAX_CHANNEL_LEN + 1]).err(), Some(Error::ChannelLength));
        assert_eq!(parse(&[b'x'; MAX_CHANNEL_LEN]).unwrap().notify, Some(5));
    }

    proptest! {
        #[test]
        fn any_words_are_safe(words: Vec<Vec<u8>>, allowed: u16) {
            let _ = Options::parse(words.iter().map(Vec::as_slice), Allowed::from_bits_truncate(allowed));
        }
    }
}
