//! The grammar of options, in its simplest form. The parser is compared with it.

use redis_lock::command::options::{Allowed, Options};
use redis_lock::core::{
    BlockTimeout, Error, HoldNumber, Lease, Limit, MAX_CHANNEL_LEN, MAX_DURATION_MS, MIN_SESSION_LEASE_MS,
};

/// Reads words as options, as the parser should.
///
/// # Errors
///
/// The error that the parser should return.
pub fn read(words: &[&[u8]], allowed: Allowed) -> Result<Options, Error> {
    let mut options = Options::default();
    let mut seen = Vec::new();
    let mut place = 0;
    while place < words.len() {
        let name = words[place].to_ascii_uppercase();
        let (option, has_value) = option(&name).ok_or(Error::Syntax)?;
        if !allowed.contains(option) || seen.contains(&option.bits()) {
            return Err(Error::Syntax);
        }
        seen.push(option.bits());
        let value = words.get(place + 1).copied();
        if has_value && value.is_none() {
            return Err(Error::Syntax);
        }
        take(&mut options, &name, place + 1, value.unwrap_or_default())?;
        place += 1 + usize::from(has_value);
    }
    agree(options)
}

fn option(name: &[u8]) -> Option<(Allowed, bool)> {
    Some(match name {
        b"EX" | b"PX" => (Allowed::LEASE, true),
        b"BLOCK" => (Allowed::BLOCK, true),
        b"NX" => (Allowed::NX, false),
        b"ADD" => (Allowed::ADD, false),
        b"COUNT" => (Allowed::COUNT, true),
        b"HOLD" => (Allowed::HOLD, true),
        b"LIMIT" => (Allowed::LIMIT, true),
        b"SESSION" => (Allowed::SESSION, false),
        b"NOTIFY" => (Allowed::NOTIFY, true),
        b"GRACE" => (Allowed::GRACE, true),
        b"MAXWAITERS" => (Allowed::MAX_WAITERS, true),
        _ => return None,
    })
}

fn take(options: &mut Options, name: &[u8], place: usize, value: &[u8]) -> Result<(), Error> {
    let number = integer(value);
    let not_an_integer = if name == b"BLOCK" { Error::TimeoutNotAnInteger } else { Error::NotAnInteger };
    if !matches!(name, b"NX" | b"ADD" | b"SESSION" | b"NOTIFY") && number.is_none() {
        return Err(not_an_integer);
    }
    let number = number.unwrap_or_default();
    match name {
        b"EX" => options.lease = Some(lease(i128::from(number) * 1000)?),
        b"PX" => options.lease = Some(lease(number.into())?),
        b"BLOCK" if number < 0 => return Err(Error::TimeoutNegative),
        b"BLOCK" if number > MAX_DURATION_MS => return Err(Error::TimeoutOutOfRange),
        b"BLOCK" => options.block = Some(if number == 0 { BlockTimeout::Forever } else { BlockTimeout::Ms(number) }),
        b"GRACE" => options.grace = Some(lease(number.into())?),
        b"COUNT" | b"HOLD" | b"LIMIT" | b"MAXWAITERS" if number < 1 => return Err(Error::NotPositive),
        b"LIMIT" | b"MAXWAITERS" if number > i32::MAX.into() => return Err(Error::NotAnInteger),
        b"COUNT" => options.count = usize::try_from(number).ok(),
        b"HOLD" => options.hold = HoldNumber::from_number(number),
        b"LIMIT" => options.limit = Limit::from_number(number),
        b"MAXWAITERS" => options.max_waiters = Limit::from_number(number),
        b"NOTIFY" if value.is_empty() || value.len() > MAX_CHANNEL_LEN => return Err(Error::ChannelLength),
        b"NOTIFY" => options.notify = Some(place),
        b"NX" => options.nx = true,
        b"ADD" => options.add = true,
        _ => options.session = true,
    }
    Ok(())
}

/// Returns the number. It must be written in its canonical form.
fn integer(text: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(number).filter(|number| number.to_string().as_bytes() == text)
}

fn lease(ms: i128) -> Result<Lease, Error> {
    let ms = i64::try_from(ms).ok().filter(|ms| (1..=MAX_DURATION_MS).contains(ms));
    ms.and_then(Lease::from_ms).ok_or(Error::InvalidExpire)
}

/// Checks that the options are allowed together.
fn agree(options: Options) -> Result<Options, Error> {
    let Options { lease, block, session, grace, max_waiters, notify, .. } = options;
    if notify.is_some() && (block.is_none() || lease.is_none()) {
        return Err(Error::NotifyNeedsWait);
    }
    if max_waiters.is_some() && block.is_none() {
        return Err(Error::MaxWaitersNeedsBlock);
    }
    if grace.is_some() && !session {
        return Err(Error::GraceNeedsSession);
    }
    match lease {
        None if session => Err(Error::SessionNeedsLease),
        Some(lease) if session && Some(lease) < Lease::from_ms(MIN_SESSION_LEASE_MS) => Err(Error::InvalidExpire),
        Some(lease) if session && grace.is_some_and(|grace| grace > lease) => Err(Error::InvalidExpire),
        _ => Ok(options),
    }
}
