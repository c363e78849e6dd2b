//! Tests of the parser.

use super::*;
use crate::core::MAX_CHANNEL_LEN;
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
