//! Fencing tokens: numbers that rise from holder to holder, so that a resource can refuse a late write.

use super::Error;

/// The exclusive upper bound of fencing tokens, 2^53. Smaller integers are exact in a double, the number type of many clients.
pub const FENCING_TOKEN_LIMIT: i64 = 1 << 53;

/// Returns the fencing token that follows `last`, the present value of the counter.
///
/// `now_us`, the Unix time in microseconds, is a lower bound. So tokens rise if the counter is lost, or if the clock is set back.
///
/// # Errors
///
/// [`Error::Overflow`] if the token would not be below [`FENCING_TOKEN_LIMIT`].
pub fn next_fencing_token(last: Option<i64>, now_us: i64) -> Result<i64, Error> {
    let after_last = match last {
        Some(last) => last.checked_add(1).ok_or(Error::Overflow)?,
        None => now_us,
    };
    let token = after_last.max(now_us);
    debug_assert!(last.is_none_or(|last| token > last), "fencing tokens rise");
    if token < FENCING_TOKEN_LIMIT { Ok(token) } else { Err(Error::Overflow) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW_US: i64 = 1_700_000_000_000_000;

    #[test]
    fn fencing_token_grows_when_clock_does_not() {
        assert_eq!(next_fencing_token(None, NOW_US), Ok(NOW_US));
        assert_eq!(next_fencing_token(Some(7), NOW_US), Ok(NOW_US));
        assert_eq!(next_fencing_token(Some(NOW_US), NOW_US), Ok(NOW_US + 1));
        assert_eq!(next_fencing_token(Some(NOW_US + 5), NOW_US), Ok(NOW_US + 6));
    }

    #[test]
    fn counter_at_its_maximum_is_refused() {
        assert_eq!(next_fencing_token(Some(FENCING_TOKEN_LIMIT - 2), NOW_US), Ok(FENCING_TOKEN_LIMIT - 1));
        assert_eq!(next_fencing_token(Some(FENCING_TOKEN_LIMIT - 1), NOW_US), Err(Error::Overflow));
        assert_eq!(next_fencing_token(Some(i64::MAX), NOW_US), Err(Error::Overflow));
    }

    proptest! {
        #[test]
        fn tokens_rise_with_any_clock(clock in prop::collection::vec(0..FENCING_TOKEN_LIMIT / 2, 2..50)) {
            let mut last = None;
            for now_us in clock {
                let token = next_fencing_token(last, now_us).unwrap();
                prop_assert!(last.is_none_or(|last| token > last) && token >= now_us);
                last = Some(token);
            }
        }
    }
}
