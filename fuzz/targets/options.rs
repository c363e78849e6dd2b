//! The option parser takes no words but options of the table, each at most once, with values that are there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use redis_lock::command::options::{Allowed, OPTION_TABLE, OptionValue, Options};
use redis_lock::core::Error;

fuzz_target!(|bytes: &[u8]| {
    let Some((allowed, text)) = bytes.split_first_chunk() else { return };
    let allowed = Allowed::from_bits_truncate(u16::from_le_bytes(*allowed));
    let words: Vec<&[u8]> = text.split(|&byte| byte == b' ').collect();
    let parsed = Options::parse(words.iter().copied(), allowed);
    match first_mistake(&words, allowed) {
        Some(place) => {
            assert!(parsed.is_err());
            // What is before it may be another mistake.
            let before = Options::parse(words[..place].iter().copied(), allowed);
            assert!(before.is_err() || parsed == Err(Error::Syntax));
        }
        None => assert_ne!(parsed, Err(Error::Syntax)),
    }
});

/// Returns the place of the first word that is no option, is not allowed, comes twice, or lacks its value.
fn first_mistake(words: &[&[u8]], mut allowed: Allowed) -> Option<usize> {
    let mut place = 0;
    while let Some(word) = words.get(place) {
        let row = OPTION_TABLE.iter().find(|row| word.eq_ignore_ascii_case(row.word.to_bytes()));
        let Some(row) = row.filter(|row| allowed.contains(row.flag)) else { return Some(place) };
        let len = if row.value == OptionValue::Nothing { 1 } else { 2 };
        if place + len > words.len() {
            return Some(place);
        }
        allowed.remove(row.flag);
        place += len;
    }
    None
}
