//! Fencing tokens: numbers that rise from holder to holder, so that a resource can refuse one that came too late.

use super::Error;

/// Tokens stay below this, 2^53, up to which every integer is exact in a double: many clients have no other numbers.
pub const FENCE_LIMIT: i64 = 1 << 53;

/// LOCK.FENCE: the next token. `last` is what the counter says, `now_us` the Unix time in
/// microseconds: a floor that carries the tokens over the loss of the counter, while the counter carries them over a
/// clock that is set back.
pub fn fence(last: Option<i64>, now_us: i64) -> Result<i64, Error> {
    let after_last = match last {
        Some(last) => last.checked_add(1).ok_or(Error::Overflow)?,
        None => now_us,
    };
    let token = after_last.max(now_us);
    if token < FENCE_LIMIT { Ok(token) } else { Err(Error::Overflow) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW_US: i64 = 1_700_000_000_000_000;

    #[test]
    fn the_clock_is_the_floor_and_the_counter_goes_on_where_the_clock_stands_still_or_falls_back() {
        assert_eq!(fence(None, NOW_US), Ok(NOW_US));
        assert_eq!(fence(Some(7), NOW_US), Ok(NOW_US));
        assert_eq!(fence(Some(NOW_US), NOW_US), Ok(NOW_US + 1));
        assert_eq!(fence(Some(NOW_US + 5), NOW_US), Ok(NOW_US + 6));
    }

    #[test]
    fn a_counter_at_its_end_is_refused() {
        assert_eq!(fence(Some(FENCE_LIMIT - 2), NOW_US), Ok(FENCE_LIMIT - 1));
        assert_eq!(fence(Some(FENCE_LIMIT - 1), NOW_US), Err(Error::Overflow));
        assert_eq!(fence(Some(i64::MAX), NOW_US), Err(Error::Overflow));
    }

    proptest! {
        #[test]
        fn tokens_rise_whatever_the_clock_does(clock in prop::collection::vec(0..FENCE_LIMIT / 2, 2..50)) {
            let mut last = None;
            for now_us in clock {
                let token = fence(last, now_us).unwrap();
                prop_assert!(last.is_none_or(|last| token > last) && token >= now_us);
                last = Some(token);
            }
        }
    }
}
