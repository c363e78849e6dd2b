//! The sessions in the documentation: reading them, and writing a reply as redis-cli does.
//!
//! ```text
//! alice> LOCK.ACQUIRE door t1 PX 30000
//! (integer) 1
//! bob> LOCK.ACQUIRE door t2 BLOCK 5000
//! # bob waits
//! alice> LOCK.RELEASE door t1
//! (integer) 0
//! bob: (integer) 1
//! ```
//!
//! A name with `>` is a connection and its command; the lines below are the reply. `# bob waits` stands for a reply that
//! comes later, in lines that begin with `bob: `, and so do messages. Any other line that begins with `#`, and what
//! follows two spaces and `# `, is a comment. `(integer) ~29990` is any integer within ten per cent, `"~29990"` is a text
//! that is one, and `(integer) *` is any integer; in a text, ` * ` stands for any number. `(error) NOPERM *` is any error with
//! that code, of which each server has words of its own.

use support::Reply;

/// One thing that a session does or expects.
#[derive(Debug, PartialEq)]
pub enum Step {
    Send {
        line: usize,
        who: String,
        words: Vec<Vec<u8>>,
    },
    /// The reply to the command right before, or to the one that `who` has been waiting with.
    Expect {
        line: usize,
        who: String,
        reply: Vec<String>,
    },
    Waits {
        line: usize,
        who: String,
    },
}

/// The steps of one fenced block whose first line has the number `first`.
pub fn parse(first: usize, block: &[String]) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    let mut unanswered: Option<(usize, String)> = None;
    for (number, text) in (first..).zip(block) {
        let text = without_comment(text);
        if text.trim().is_empty() {
            continue;
        }
        if let Some(who) = waiting(text) {
            match unanswered.take() {
                Some((_, sender)) if sender == who => steps.push(Step::Waits { line: number, who }),
                _ => return Err(format!("line {number}: {who} has sent nothing that could wait")),
            }
        } else if text.starts_with('#') {
            // A remark for the reader.
        } else if let Some((who, command)) = prompt(text, "> ") {
            if let Some((line, sender)) = unanswered.take() {
                return Err(format!("line {line}: no reply is shown to {sender}"));
            }
            let words = words(command).map_err(|what| format!("line {number}: {what}"))?;
            steps.push(Step::Send { line: number, who: who.clone(), words });
            unanswered = Some((number, who));
        } else if let Some((who, reply)) = prompt(text, ": ") {
            add_reply(&mut steps, number, who, reply);
        } else {
            let who = match (unanswered.take(), steps.last()) {
                (Some((_, sender)), _) => sender,
                (None, Some(Step::Expect { who, .. })) => who.clone(),
                _ => return Err(format!("line {number}: a reply to no command: {text}")),
            };
            add_reply(&mut steps, number, who, text);
        }
    }
    match unanswered {
        Some((line, who)) => Err(format!("line {line}: no reply is shown to {who}")),
        None if steps.is_empty() => Err(format!("line {first}: an empty session")),
        None => Ok(steps),
    }
}

/// Adds a line to the reply that is being shown to `who`, or begins one.
fn add_reply(steps: &mut Vec<Step>, line: usize, who: String, text: &str) {
    if let Some(Step::Expect { who: same, reply, .. }) = steps.last_mut() {
        if *same == who {
            reply.push(text.to_owned());
            return;
        }
    }
    steps.push(Step::Expect { line, who, reply: vec![text.to_owned()] });
}

fn without_comment(text: &str) -> &str {
    text.find("  # ").map_or(text, |at| &text[..at]).trim_end()
}

/// The name in `# NAME waits`.
fn waiting(text: &str) -> Option<String> {
    let name = text.strip_prefix("# ")?.strip_suffix(" waits")?;
    is_name(name).then(|| name.to_owned())
}

/// Splits `NAME> rest` or `NAME: rest`.
fn prompt<'t>(text: &'t str, mark: &str) -> Option<(String, &'t str)> {
    let (name, rest) = text.split_once(mark)?;
    is_name(name).then(|| (name.to_owned(), rest))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// The words of a command line as redis-cli reads it: apart by spaces, with quotes around what contains some.
fn words(line: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, after) = match first {
            '"' => quoted(&rest[1..], '"')?,
            '\'' => quoted(&rest[1..], '\'')?,
            _ => {
                let end = rest.find(' ').unwrap_or(rest.len());
                (rest.as_bytes()[..end].to_vec(), &rest[end..])
            }
        };
        if !after.is_empty() && !after.starts_with(' ') {
            return Err(format!("a quote in the middle of a word: {line}"));
        }
        words.push(word);
        rest = after.trim_start();
    }
    if words.is_empty() { Err("an empty command".to_owned()) } else { Ok(words) }
}

/// The bytes up to the closing quote, and what follows it.
fn quoted(text: &str, quote: char) -> Result<(Vec<u8>, &str), String> {
    let mut word = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            c if c == quote => return Ok((word.into_bytes(), &text[at + 1..])),
            '\\' => match characters.next() {
                Some((_, escaped @ ('"' | '\'' | '\\'))) => word.push(escaped),
                Some((_, 'n')) => word.push('\n'),
                Some((_, 'r')) => word.push('\r'),
                Some((_, 't')) => word.push('\t'),
                _ => return Err(format!("an escape that is not known here: {text}")),
            },
            c => word.push(c),
        }
    }
    Err(format!("a quote that is not closed: {text}"))
}

/// A reply as redis-cli shows it.
pub fn shown(reply: &Reply) -> Vec<String> {
    match reply {
        Reply::Nil => vec!["(nil)".to_owned()],
        Reply::Int(number) => vec![format!("(integer) {number}")],
        Reply::Text(bytes) => vec![in_quotes(bytes)],
        Reply::Status(text) => vec![text.clone()],
        Reply::Error(line) => vec![format!("(error) {line}")],
        Reply::List(items) if items.is_empty() => vec!["(empty array)".to_owned()],
        Reply::List(items) => numbered(items),
        Reply::Map(_) | Reply::Push(_) | Reply::Other(_) | Reply::Closed => vec![format!("{reply:?}")],
    }
}

fn in_quotes(bytes: &[u8]) -> String {
    // The only character that Rust escapes and redis-cli does not.
    format!("\"{}\"", bytes.escape_ascii()).replace("\\'", "'")
}

/// The items of an array, each behind its number, the lines below the first moved in to stand below it.
fn numbered(items: &[Reply]) -> Vec<String> {
    let width = items.len().to_string().len();
    let mut lines = Vec::new();
    for (number, item) in (1..).zip(items) {
        for (place, line) in shown(item).into_iter().enumerate() {
            lines.push(match place {
                0 => format!("{number:>width$}) {line}"),
                _ => format!("{:width$}  {line}", ""),
            });
        }
    }
    lines
}

/// Whether the lines that came are those that the document shows.
pub fn agree(expected: &[String], came: &[String]) -> bool {
    expected.len() == came.len() && expected.iter().zip(came).all(|(expected, came)| line_agrees(expected, came))
}

fn line_agrees(expected: &str, came: &str) -> bool {
    const INTEGER: &str = "(integer) ";
    if let Some((before, number)) = expected.split_once("\"~") {
        let came = came.strip_prefix(before).and_then(|rest| rest.strip_prefix('"'));
        return came.is_some_and(|came| is_about(number.trim_end_matches('"'), came.trim_end_matches('"')));
    }
    if let Some(code) = expected.strip_suffix(" *").filter(|code| code.starts_with("(error) ")) {
        return came.strip_prefix(code).is_some_and(|rest| rest.starts_with(' '));
    }
    if let Some((before, after)) = expected.split_once(" * ") {
        let number = came.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        return number.is_some_and(|number| number.trim().parse::<i64>().is_ok());
    }
    let Some((before, number)) = expected.split_once(INTEGER) else { return expected == came };
    let Some(came) = came.strip_prefix(before).and_then(|rest| rest.strip_prefix(INTEGER)) else { return false };
    match number.strip_prefix('~') {
        Some(about) => is_about(about, came),
        None if number == "*" => came.parse::<i64>().is_ok(),
        None => came == number,
    }
}

/// Whether a number is within ten per cent of another one.
fn is_about(about: &str, came: &str) -> bool {
    let (Ok(about), Ok(came)) = (about.parse::<i64>(), came.parse::<i64>()) else { return false };
    (came - about).abs() * 10 <= about.abs()
}
