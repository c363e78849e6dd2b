//! The values of options.
//!
//! Each function reads the word behind an option, which has any bytes.

use crate::core::{BlockTimeout, Error, HoldNumber, Lease, Limit, MAX_CHANNEL_LEN, MAX_DURATION_MS, parse_integer};

/// A word with its number among the arguments.
pub type Numbered<'a> = (usize, &'a [u8]);

/// Reads an option without a value.
pub fn given(_: Numbered<'_>) -> Result<bool, Error> {
    Ok(true)
}

pub fn seconds((_, text): Numbered<'_>) -> Result<Lease, Error> {
    let seconds = parse_integer(text).ok_or(Error::NotAnInteger)?;
    seconds.checked_mul(1000).and_then(Lease::from_ms).ok_or(Error::InvalidExpire)
}

pub fn milliseconds((_, text): Numbered<'_>) -> Result<Lease, Error> {
    parse_integer(text).ok_or(Error::NotAnInteger).and_then(|ms| Lease::from_ms(ms).ok_or(Error::InvalidExpire))
}

pub fn timeout((_, text): Numbered<'_>) -> Result<BlockTimeout, Error> {
    match parse_integer(text).ok_or(Error::TimeoutNotAnInteger)? {
        ..0 => Err(Error::TimeoutNegative),
        0 => Ok(BlockTimeout::Forever),
        ms @ 1..=MAX_DURATION_MS => Ok(BlockTimeout::Ms(ms)),
        _ => Err(Error::TimeoutOutOfRange),
    }
}

pub fn channel((number, name): Numbered<'_>) -> Result<usize, Error> {
    if (1..=MAX_CHANNEL_LEN).contains(&name.len()) { Ok(number) } else { Err(Error::ChannelLength) }
}

pub fn count((_, text): Numbered<'_>) -> Result<usize, Error> {
    let count = parse_integer(text).ok_or(Error::NotAnInteger)?;
    usize::try_from(count).ok().filter(|&count| count > 0).ok_or(Error::NotPositive)
}

pub fn hold_number((_, text): Numbered<'_>) -> Result<HoldNumber, Error> {
    parse_integer(text).ok_or(Error::NotAnInteger).and_then(|n| HoldNumber::from_number(n).ok_or(Error::NotPositive))
}

pub fn limit((_, text): Numbered<'_>) -> Result<Limit, Error> {
    match parse_integer(text).ok_or(Error::NotAnInteger)? {
        ..=0 => Err(Error::NotPositive),
        number => Limit::from_number(number).ok_or(Error::NotAnInteger),
    }
}
