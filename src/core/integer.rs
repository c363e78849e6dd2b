//! Decimal integers in the server's own format.

/// The length of the longest decimal form of an `i64`, including the sign.
const MAX_LEN: usize = 20;

/// Parses a decimal integer exactly as the server's `string2ll` does.
///
/// The format is an optional minus sign and digits without leading zeros. Returns `None` otherwise, or if an `i64` is too small.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let negative = digits.len() != text.len();
    match digits.first()? {
        b'0' if text.len() > 1 => return None,
        b'0'..=b'9' => {}
        _ => return None,
    }
    digits.iter().try_fold(0i64, |value, byte| {
        let digit = match byte {
            b'0'..=b'9' => i64::from(byte.wrapping_sub(b'0')),
            _ => return None,
        };
        // A negative number is computed by subtraction, because i64::MIN has no positive counterpart.
        let shifted = value.checked_mul(10)?;
        if negative { shifted.checked_sub(digit) } else { shifted.checked_add(digit) }
    })
}

/// The digit pairs `00` to `99`.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut n = 0;
    #[expect(clippy::indexing_slicing, reason = "computed by the compiler")]
    while n < 100 {
        pairs[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    pairs
};

/// Calls `with` with the decimal form of `value` and returns its result. Does not allocate.
///
/// It writes two digits at a time. Each grant formats the end of its lease, and the formatter of std takes three times as long.
pub fn format_integer<R>(value: i64, with: impl FnOnce(&[u8]) -> R) -> R {
    let mut buffer = [0u8; MAX_LEN];
    let mut rest = value.unsigned_abs();
    let mut start = MAX_LEN;
    // The pairs are written from the last to the first. The buffer is long enough for every i64.
    for slot in buffer.rchunks_exact_mut(2) {
        // The index is always in range.
        slot.copy_from_slice(PAIRS.get((rest % 100) as usize).unwrap_or(&[b'0'; 2]));
        start = start.wrapping_sub(2);
        if rest < 100 {
            start = start.wrapping_add(usize::from(rest < 10));
            break;
        }
        rest /= 100;
    }
    debug_assert!(rest < 100 && start < MAX_LEN, "the buffer is too short");
    if value < 0 {
        start = start.wrapping_sub(1);
        buffer.get_mut(start).into_iter().for_each(|sign| *sign = b'-');
    }
    with(buffer.get(start..).unwrap_or(&[]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn canonical_integer_is_read() {
        for (text, value) in
            [("0", 0), ("7", 7), ("-1", -1), ("9223372036854775807", i64::MAX), ("-9223372036854775808", i64::MIN)]
        {
            assert_eq!(parse_integer(text.as_bytes()), Some(value), "{text}");
            assert_eq!(format_integer(value, <[u8]>::to_vec), text.as_bytes());
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            "-01",
            " 1",
            "1 ",
            "1.0",
            "1e3",
            "0x1",
            "ten",
            "9223372036854775808",
            "-9223372036854775809",
            "18446744073709551616",
            "1\0",
            "\u{661}",
        ] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn formatted_integer_parses_to_same_value(value: i64) {
            prop_assert_eq!(format_integer(value, parse_integer), Some(value));
        }

        #[test]
        fn only_canonical_text_is_read(text: Vec<u8>) {
            if let Some(value) = parse_integer(&text) {
                prop_assert_eq!(value.to_string().into_bytes(), text);
            }
        }
    }
}
