//! The hash slots of a cluster.

/// Returns the hash slot of a key: that of its hash tag, if it has one, which stands between the first `{` and the next
/// `}`.
pub fn hash_slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) & 0x3FFF
}

/// Returns the name of a key in the same slot, with this suffix, or `None` if the slot is that of a name that cannot be written
/// as a tag.
pub(super) fn beside(key: &[u8], suffix: &[u8]) -> Option<Vec<u8>> {
    let has_brace = key.iter().any(|byte| b"{}".contains(byte));
    match hash_tag(key) {
        Some(_) => Some([key, suffix].concat()),
        None if !key.is_empty() && !has_brace => Some([b"{", key, b"}", suffix].concat()),
        None => None,
    }
}

fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let from = key.iter().position(|byte| *byte == b'{')?.checked_add(1)?;
    let rest = key.get(from..)?;
    let len = rest.iter().position(|byte| *byte == b'}')?;
    rest.get(..len).filter(|tag| !tag.is_empty())
}

/// CRC16-XMODEM, as the cluster specification has it. The eight steps for the bits of a byte are made at once.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        let high = (crc >> 8) ^ u16::from(*byte);
        let mixed = high ^ (high >> 4);
        (crc << 8) ^ (mixed << 12) ^ (mixed << 5) ^ mixed
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_slots_of_the_specification() {
        for (key, slot) in [("123456789", 0x31C3), ("", 0), ("foo", 12182), ("{foo}bar", 12182), ("a{foo}{b}", 12182)] {
            assert_eq!(hash_slot(key.as_bytes()), slot, "{key}");
        }
        assert_ne!(hash_slot(b"{}foo"), hash_slot(b""));
        assert_ne!(hash_slot(b"{foo"), hash_slot(b"foo"));
    }

    #[test]
    fn a_key_beside_another_has_its_slot() {
        for key in ["foo", "{foo}bar", "a{foo}{b}", "a{b}c}", "a}b{c}"] {
            let other = beside(key.as_bytes(), b"*").expect("a name");
            assert_eq!(hash_slot(&other), hash_slot(key.as_bytes()), "{key}");
            assert_ne!(other, key.as_bytes());
        }
        for key in ["", "{}foo", "{foo", "foo}", "a}b{"] {
            assert_eq!(beside(key.as_bytes(), b"*"), None, "{key}");
        }
    }
}
