//! Fencing tokens: numbers that rise from holder to holder, so that a resource can refuse one that came too late.

use super::Error;

/// Tokens stay below this, 2^53, up to which every integer is exact in a double: many clients have no other numbers.
pub const FENCING_TOKEN_LIMIT: i64 = 1 << 53;

/// LOCK.FENCE: the next token. `last` is what the counter says, `now_us` the Unix time in
/// microseconds: a floor that carries the tokens over the loss of the counter, while the counter carries them over a
/// clock that is set back.
pub fn next_fencing_token(last: Option<i64>, now_us: i64) -> Result<i64, Error> {
    let after_last = match last {
        Some(last) => last.checked_add(1).ok_or(Error::Overflow)?,
        None => now_us,
    };
    let token = after_last.max(now_us);
    if token < FENCING_TOKEN_LIMIT { Ok(token) } else { Err(Error::Overflow) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW_US: i64 = 1_700_000_000_000_000;

    #[test]
    fn the_clock_is_the_floor_and_the_counter_goes_on_where_the_clock_stands_still_or_falls_back() {
        assert_eq!(next_fencing_token(None, NOW_US), Ok(NOW_US));
        assert_eq!(next_fencing_token(Some(7), NOW_US), Ok(NOW_US));
        assert_eq!(next_fencing_token(Some(NOW_US), NOW_US), Ok(NOW_US + 1));
        assert_eq!(next_fencing_token(Some(NOW_US + 5), NOW_US), Ok(NOW_US + 6));
    }

    #[test]
    fn a_counter_at_its_end_is_refused() {
        assert_eq!(next_fencing_token(Some(FENCING_TOKEN_LIMIT - 2), NOW_US), Ok(FENCING_TOKEN_LIMIT - 1));
        assert_eq!(next_fencing_token(Some(FENCING_TOKEN_LIMIT - 1), NOW_US), Err(Error::Overflow));
        assert_eq!(next_fencing_token(Some(i64::MAX), NOW_US), Err(Error::Overflow));
    }

    proptest! {
        #[test]
        fn tokens_rise_whatever_the_clock_does(clock in prop::collection::vec(0..FENCING_TOKEN_LIMIT / 2, 2..50)) {
            let mut last = None;
            for now_us in clock {
                let token = next_fencing_token(last, now_us).unwrap();
                prop_assert!(last.is_none_or(|last| token > last) && token >= now_us);
                last = Some(token);
            }
        }
    }
}
