//! The option parser reads any words as the grammar does.
#![no_main]

use libfuzzer_sys::fuzz_target;
use redis_lock::command::options::{Allowed, Options};

fuzz_target!(|bytes: &[u8]| {
    let Some((allowed, text)) = bytes.split_first_chunk() else { return };
    let allowed = Allowed::from_bits_truncate(u16::from_le_bytes(*allowed));
    let words: Vec<&[u8]> = text.split(|&byte| byte == b' ').collect();
    let parsed = Options::parse(words.iter().copied(), allowed);
    assert_eq!(parsed, fuzz::grammar::read(&words, allowed));
});
