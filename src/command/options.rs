//! The option parser of all commands: `[EX s | PX ms] [BLOCK ms] [NX] [SESSION [GRACE ms]] [HOLD n] [LIMIT n] [ADD] [COUNT n]
//! [NOTIFY channel] [MAXWAITERS n]`.
//!
//! Options come in any order and case, each at most once. The table below has one row for each: the parser, COMMAND DOCS, and the
//! tests of documents, scenarios, the simulator and the fuzzer come from it.

use std::ffi::CStr;

use bitflags::bitflags;

use super::Parsed;
use super::values::{Numbered, channel, count, given, hold_number, limit, milliseconds, seconds, timeout};
use crate::core::{Action, BlockTimeout, Error, HoldNumber, Lease, Limit, MIN_SESSION_LEASE_MS, Request};

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

/// An option of a command. Rows with the same flag are forms of one option.
pub struct OptionRow {
    /// The word, in upper case. Commands take it in any case.
    pub word: &'static CStr,
    pub flag: Allowed,
    /// The name of the argument in COMMAND DOCS.
    pub name: &'static CStr,
    pub value: OptionValue,
}

/// What follows the word of an option.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OptionValue {
    Nothing,
    Integer,
    Text,
}

macro_rules! option_table {
    ($($word:literal $flag:ident $name:literal $value:ident $field:ident = $read:ident;)*) => {
        /// All options, the most frequent first.
        pub const OPTION_TABLE: &[OptionRow] = &[$(
            OptionRow { word: $word, flag: Allowed::$flag, name: $name, value: OptionValue::$value },
        )*];

        impl Options {
            /// Reads the option that begins with `word`, and its value from the words after it. `left` has the options that can
            /// still come.
            #[inline(always)]
            fn read<'a>(
                &mut self,
                word: &[u8],
                words: &mut impl Iterator<Item = Numbered<'a>>,
                left: &mut Allowed,
            ) -> Result<(), Error> {
                $(if word.eq_ignore_ascii_case($word.to_bytes()) {
                    if !left.contains(Allowed::$flag) {
                        return Err(Error::Syntax);
                    }
                    left.remove(Allowed::$flag);
                    let value = match OptionValue::$value {
                        OptionValue::Nothing => (0, b"".as_slice()),
                        OptionValue::Integer | OptionValue::Text => words.next().ok_or(Error::Syntax)?,
                    };
                    self.$field = $read(value)?.into();
                    return Ok(());
                })*
                Err(Error::Syntax)
            }
        }
    };
}

option_table! {
    // word        flag         in COMMAND DOCS  value    field of Options, and how it is read
    c"PX"          LEASE        c"milliseconds"  Integer  lease = milliseconds;
    c"EX"          LEASE        c"seconds"       Integer  lease = seconds;
    c"BLOCK"       BLOCK        c"timeout"       Integer  block = timeout;
    c"NX"          NX           c"condition"     Nothing  nx = given;
    c"HOLD"        HOLD         c"hold"          Integer  hold = hold_number;
    c"LIMIT"       LIMIT        c"limit"         Integer  limit = limit;
    c"SESSION"     SESSION      c"session"       Nothing  session = given;
    c"NOTIFY"      NOTIFY       c"channel"       Text     notify = channel;
    c"ADD"         ADD          c"add"           Nothing  add = given;
    c"COUNT"       COUNT        c"count"         Integer  count = count;
    c"GRACE"       GRACE        c"grace"         Integer  grace = milliseconds;
    c"MAXWAITERS"  MAX_WAITERS  c"max-waiters"   Integer  max_waiters = limit;
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
            options.read(text, &mut words, &mut left)?;
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

#[cfg(test)]
mod tests;
