//! The words of a command: bytes between spaces, or in double quotes with the escapes of redis-cli.

use std::iter;

/// Returns the commands between semicolons, each as its words.
pub(super) fn commands(text: &str) -> Option<Vec<Vec<Vec<u8>>>> {
    let mut commands = vec![Vec::new()];
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (word, count, behind) = match quoted(rest) {
            Some((word, behind)) => (word, 1, behind),
            None if rest.starts_with('"') => return None,
            None => {
                let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
                if word == ";" {
                    commands.push(Vec::new());
                    rest = behind.trim_start();
                    continue;
                }
                let (word, count) = repeated(word).unwrap_or((word, 1));
                (word.as_bytes().to_vec(), count, behind)
            }
        };
        commands.last_mut()?.extend(iter::repeat_n(word, count));
        rest = behind.trim_start();
    }
    commands.iter().all(|words| !words.is_empty()).then_some(commands)
}

/// The word before `*n` without quotes, which stands for `n` such words.
fn repeated(word: &str) -> Option<(&str, usize)> {
    let (word, count) = word.rsplit_once('*').filter(|(word, _)| !word.is_empty())?;
    Some((word, count.parse().ok()?))
}

/// Returns the bytes of the word in quotes with which a text begins, repeated if `*n` follows, and the rest of the text.
pub(super) fn quoted(text: &str) -> Option<(Vec<u8>, &str)> {
    let inside = text.strip_prefix('"')?;
    let end = closing_quote(inside)?;
    let word = unescaped(&inside[..end])?;
    let behind = &inside[end + 1..];
    let Some(count) = behind.strip_prefix('*') else { return Some((word, behind)) };
    let digits = count.find(|c: char| !c.is_ascii_digit()).unwrap_or(count.len());
    Some((word.repeat(count[..digits].parse().ok()?), &count[digits..]))
}

fn closing_quote(inside: &str) -> Option<usize> {
    let mut escaped = false;
    inside.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'x' => {
                    let digits = [rest.next()?, rest.next()?];
                    u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
                }
                other => other,
            },
            byte => byte,
        });
    }
    Some(bytes)
}

/// Splits a text at a separator outside of double quotes and brackets.
pub(super) fn split_outside<'t>(text: &'t str, separator: &str) -> Vec<&'t str> {
    let (mut parts, mut begin, mut depth, mut in_quotes, mut at) = (Vec::new(), 0, 0_u32, false, 0);
    while at < text.len() {
        let rest = &text[at..];
        if !in_quotes && depth == 0 && rest.starts_with(separator) {
            parts.push(&text[begin..at]);
            at += separator.len();
            begin = at;
            continue;
        }
        let first = rest.chars().next().unwrap_or_default();
        match first {
            '\\' if in_quotes => at += 1,
            '"' => in_quotes = !in_quotes,
            '[' | '{' if !in_quotes => depth += 1,
            ']' | '}' if !in_quotes => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += first.len_utf8();
    }
    parts.push(&text[begin.min(text.len())..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Vec<Vec<u8>> {
        commands(text).expect("a command").remove(0)
    }

    #[test]
    fn quotes_keep_spaces_escapes_and_empty_words() {
        assert_eq!(one(r#"EVAL "return 1 ; 2" 0"#), [b"EVAL".as_slice(), b"return 1 ; 2", b"0"]);
        assert_eq!(one(r#"SET "" "\x00\xff\n\"\\""#), [b"SET".as_slice(), b"", b"\x00\xff\n\"\\"]);
        assert_eq!(one(r#"SET "x"*3 y*2"#), [b"SET".as_slice(), b"xxx", b"y", b"y"]);
        assert_eq!(one("KEYS * door*"), [b"KEYS".as_slice(), b"*", b"door*"]);
        assert_eq!(commands(r#"GET "open"#), None);
    }

    #[test]
    fn semicolons_separate_commands() {
        assert_eq!(commands("MULTI ; GET x").map(|commands| commands.len()), Some(2));
        assert_eq!(commands("MULTI ;"), None);
    }

    #[test]
    fn separators_in_brackets_and_quotes_do_not_split() {
        assert_eq!(split_outside(r#"[a, b], "c, d", e"#, ", "), ["[a, b]", r#""c, d""#, "e"]);
    }
}
