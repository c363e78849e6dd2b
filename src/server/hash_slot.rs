//! The hash slots of a cluster.

/// Returns the hash slot of a key, from 0 to 16383. If the key has a hash tag, which is the text between the first `{` and the
/// next `}`, this is the slot of the tag.
pub fn hash_slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) & 0x3FFF
}

/// Returns a name with this suffix in the slot of a key. The name is never the key itself.
///
/// A key without a hash tag becomes the tag of the name. If the key contains a brace, which would end the tag early, the tag
/// consists of two bytes in the slot, and the name is `{..}` followed by the key and the suffix.
pub(super) fn sibling_key(key: &[u8], suffix: &[u8]) -> Vec<u8> {
    let has_brace = key.iter().any(|byte| b"{}".contains(byte));
    match hash_tag(key) {
        Some(_) => [key, suffix].concat(),
        None if !key.is_empty() && !has_brace => [b"{", key, b"}", suffix].concat(),
        None => [b"{", tag_in_slot(hash_slot(key)).as_slice(), b"}", key, suffix].concat(),
    }
}

/// Returns a hash tag of two bytes in a slot.
fn tag_in_slot(slot: u16) -> [u8; 2] {
    // A slot has 14 bits of the checksum: four checksums belong to it. `}` would end the tag.
    let mut tags = [0, 1, 2, 3].into_iter().map(|high| bytes_with_crc16(slot | high << 14));
    let tag = tags.find(|tag| !tag.contains(&b'}'));
    debug_assert!(tag.is_some(), "all tags in slot {slot} contain a brace");
    tag.unwrap_or_default() // Every slot has a tag, as a test shows.
}

/// Returns the two bytes that have this checksum. There is one such pair for each checksum.
fn bytes_with_crc16(crc: u16) -> [u8; 2] {
    // Each low byte belongs to one byte, so the search always finds it.
    let byte_with_low = |low| (0..=u8::MAX).find(|&byte| crc16(&[byte]) as u8 == low).unwrap_or_default();
    // Only the second byte, mixed with the high byte of the first checksum, changes the low byte.
    let mixed = byte_with_low(crc as u8);
    let first = byte_with_low(((crc ^ crc16(&[mixed])) >> 8) as u8);
    [first, mixed ^ (crc16(&[first]) >> 8) as u8]
}

fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let from = key.iter().position(|byte| *byte == b'{')?.checked_add(1)?;
    let rest = key.get(from..)?;
    let len = rest.iter().position(|byte| *byte == b'}')?;
    rest.get(..len).filter(|tag| !tag.is_empty())
}

/// Returns the CRC16-XMODEM checksum of the cluster specification. One step handles the eight bits of a byte.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        let high = (crc >> 8) ^ u16::from(*byte);
        let mixed = high ^ (high >> 4);
        (crc << 8) ^ (mixed << 12) ^ (mixed << 5) ^ mixed
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn slots_match_the_specification() {
        for (key, slot) in [("123456789", 0x31C3), ("", 0), ("foo", 12182), ("{foo}bar", 12182), ("a{foo}{b}", 12182)] {
            assert_eq!(hash_slot(key.as_bytes()), slot, "{key}");
        }
        assert_ne!(hash_slot(b"{}foo"), hash_slot(b""));
        assert_ne!(hash_slot(b"{foo"), hash_slot(b"foo"));
    }

    #[test]
    fn every_slot_has_a_tag_of_two_bytes() {
        for slot in 0..1 << 14 {
            let tag = tag_in_slot(slot);
            assert!(!tag.contains(&b'}'), "{tag:?}");
            assert_eq!(hash_slot(&tag), slot);
        }
    }

    /// Returns keys with braces in all positions.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![2 => Just(b'{'), 2 => Just(b'}'), 3 => any::<u8>()];
        prop::collection::vec(byte, 0..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4000) })]
        #[test]
        fn sibling_key_has_the_slot_of_its_key(key in key(), suffix in "[a-z\\x00]{1,6}") {
            let sibling = sibling_key(&key, suffix.as_bytes());
            prop_assert_eq!(hash_slot(&sibling), hash_slot(&key));
            prop_assert_ne!(&sibling, &key);
            prop_assert!(sibling.ends_with(suffix.as_bytes()));
        }
    }

    #[test]
    fn sibling_of_key_without_braces_is_readable() {
        let name = |key: &str| String::from_utf8(sibling_key(key.as_bytes(), b"*")).expect("text");
        assert_eq!(["foo", "{foo}bar", "a{b}c}"].map(name), ["{foo}*", "{foo}bar*", "a{b}c}*"]);
        for key in ["", "{}foo", "{foo", "foo}", "a}b{"] {
            assert_eq!(hash_slot(&sibling_key(key.as_bytes(), b"*")), hash_slot(key.as_bytes()), "{key}");
        }
    }
}
