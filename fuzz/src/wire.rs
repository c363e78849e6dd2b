//! Reads commands in both formats of the protocol: arrays of bulk strings, and lines.

/// The greatest number of words in a command, and of bytes in a word. Reading stops at a greater number.
const LIMIT: usize = 1 << 16;

/// Returns the commands that have arrived on a connection, up to the first incomplete or invalid one.
pub fn commands(mut bytes: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let mut commands = Vec::new();
    while let Some((words, rest)) = command(bytes) {
        bytes = rest;
        commands.extend(Some(words).filter(|words| !words.is_empty()));
    }
    commands
}

fn command(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, &[u8])> {
    let (head, mut rest) = line(bytes)?;
    let Some(count) = head.strip_prefix(b"*") else { return Some((in_a_line(head), rest)) };
    let mut words = Vec::new();
    for _ in 0..number(count)? {
        let (head, behind) = line(rest)?;
        let len = number(head.strip_prefix(b"$")?)?;
        words.push(behind.get(..len)?.to_vec());
        rest = behind.get(len + 2..)?;
    }
    Some((words, rest))
}

fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    let line = &bytes[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), &bytes[end + 1..]))
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|&number| number <= LIMIT)
}

fn in_a_line(line: &[u8]) -> Vec<Vec<u8>> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_read_up_to_invalid_command() {
        let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        let bytes = b"PING\r\n\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\nLOCK.INFO  k\n*1\r\n$4\r\nPIN";
        assert_eq!(commands(bytes), [words("PING"), words("GET k"), words("LOCK.INFO k")]);
        assert!(commands(b"*99999999\r\n").is_empty());
    }
}
