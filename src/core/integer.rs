//! Integers as the server reads and writes them.

use std::io::Write as _;

/// Longest decimal form of an `i64`, sign included.
const MAX_LEN: usize = 20;

/// Reads a decimal integer exactly as the server's own `string2ll` does: an optional minus, no plus, no leading zero,
/// no white space, nothing behind it, and within the range of an `i64`. Anything else is `None`.
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
        // Negative numbers are summed downwards, because i64::MIN has no positive counterpart.
        let shifted = value.checked_mul(10)?;
        if negative { shifted.checked_sub(digit) } else { shifted.checked_add(digit) }
    })
}

/// The decimal form of `value`, lent to `with`; no allocation.
pub fn format_integer<R>(value: i64, with: impl FnOnce(&[u8]) -> R) -> R {
    let mut buffer = [0u8; MAX_LEN];
    let mut free = &mut buffer[..];
    // The buffer holds every i64, so the write cannot fail; were it to, the text would only be cut short.
    let _ = write!(free, "{value}");
    let unused = free.len();
    let used = MAX_LEN.saturating_sub(unused);
    with(buffer.get(..used).unwrap_or(&[]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_the_server_reads() {
        for (text, value) in
            [("0", 0), ("7", 7), ("-1", -1), ("9223372036854775807", i64::MAX), ("-9223372036854775808", i64::MIN)]
        {
            assert_eq!(parse_integer(text.as_bytes()), Some(value), "{text}");
        }
    }

    #[test]
    fn refuses_what_the_server_refuses() {
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
        fn every_integer_survives_the_round_trip(value: i64) {
            prop_assert_eq!(format_integer(value, parse_integer), Some(value));
        }

        #[test]
        fn any_bytes_are_safe_and_only_canonical_text_is_read(text: Vec<u8>) {
            if let Some(value) = parse_integer(&text) {
                prop_assert_eq!(value.to_string().into_bytes(), text);
            }
        }
    }
}
