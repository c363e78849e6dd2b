//! What the server answered, in a form that is short to compare.

use std::fmt;

use redis::{RedisError, RedisResult, ServerError, Value};

/// One reply. Texts are bytes, errors are the whole line as the server sent it.
#[derive(Clone, PartialEq)]
pub enum Reply {
    Nil,
    Int(i64),
    Text(Vec<u8>),
    Status(String),
    List(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    /// A message that RESP3 marks as one, its kind first.
    Push(Vec<Reply>),
    Other(String),
    Error(String),
    /// The server closed the connection in place of an answer.
    Closed,
}

impl Reply {
    /// The answer to a request that waits for a message.
    pub fn waiting() -> Self {
        Self::Status("WAITING".to_owned())
    }

    pub fn of(result: RedisResult<Value>) -> Self {
        match result {
            Ok(value) => Self::from_value(value),
            Err(error) => Self::from_failure(&error),
        }
    }

    fn from_failure(error: &RedisError) -> Self {
        if error.is_timeout() {
            return Self::Other("no answer in time".to_owned());
        }
        if error.is_connection_dropped() || error.is_io_error() {
            // What else may end one is another thing to look into than a close.
            if !error.is_connection_dropped() {
                eprintln!("a connection ended without being closed: {error}");
            }
            return Self::Closed;
        }
        panic!("the answer is not RESP: {error}");
    }

    fn from_value(value: Value) -> Self {
        let list = |items: Vec<Value>| items.into_iter().map(Self::from_value).collect();
        match value {
            Value::Nil => Self::Nil,
            Value::Int(number) => Self::Int(number),
            Value::BulkString(bytes) => Self::Text(bytes),
            Value::VerbatimString { text, .. } => Self::Text(text.into_bytes()),
            Value::SimpleString(text) => Self::Status(text),
            Value::Okay => Self::Status("OK".to_owned()),
            Value::Array(items) | Value::Set(items) => Self::List(list(items)),
            Value::Map(pairs) => Self::Map(
                pairs.into_iter().map(|(key, value)| (Self::from_value(key), Self::from_value(value))).collect(),
            ),
            Value::Push { kind, data } => {
                Self::Push([Self::text(&kind.to_string())].into_iter().chain(list(data)).collect())
            }
            Value::ServerError(error) => Self::Error(line_of(&error)),
            other => Self::Other(format!("{other:?}")),
        }
    }

    pub fn text(text: &str) -> Self {
        Self::Text(text.as_bytes().to_vec())
    }

    pub fn list(items: impl IntoIterator<Item = Self>) -> Self {
        Self::List(items.into_iter().collect())
    }

    #[track_caller]
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            other => panic!("not an integer: {other:?}"),
        }
    }

    #[track_caller]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(bytes) => bytes,
            Self::Status(text) => text.as_bytes(),
            other => panic!("not a string: {other:?}"),
        }
    }

    #[track_caller]
    pub fn string(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    #[track_caller]
    pub fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            other => panic!("not an array: {other:?}"),
        }
    }

    /// The pairs of a RESP3 map, or of the flat array that stands for it in RESP2.
    #[track_caller]
    pub fn pairs(&self) -> Vec<(String, Self)> {
        match self {
            Self::Map(pairs) => pairs.iter().map(|(key, value)| (key.string(), value.clone())).collect(),
            Self::List(items) => items
                .chunks(2)
                .map(|pair| match pair {
                    [key, value] => (key.string(), value.clone()),
                    _ => panic!("a flat map with a key that has no value: {self:?}"),
                })
                .collect(),
            other => panic!("not a map: {other:?}"),
        }
    }

    /// The value of one key of a map.
    #[track_caller]
    pub fn get(&self, key: &str) -> Self {
        self.pairs().into_iter().find(|(name, _)| name == key).unwrap_or_else(|| panic!("no {key} in {self:?}")).1
    }

    /// The whole error line, without the leading minus.
    #[track_caller]
    pub fn error(&self) -> &str {
        match self {
            Self::Error(line) => line,
            other => panic!("not an error: {other:?}"),
        }
    }

    /// The first word of the error.
    #[track_caller]
    pub fn code(&self) -> &str {
        self.error().split(' ').next().unwrap_or_default()
    }

    /// Returns whether this is a string, of either kind.
    pub fn is_text(&self) -> bool {
        matches!(self, Self::Text(_) | Self::Status(_))
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}

fn line_of(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

impl PartialEq<i64> for Reply {
    fn eq(&self, other: &i64) -> bool {
        matches!(self, Self::Int(number) if number == other)
    }
}

impl PartialEq<&str> for Reply {
    fn eq(&self, other: &&str) -> bool {
        match self {
            Self::Text(bytes) => bytes == other.as_bytes(),
            Self::Status(text) => text == other,
            _ => false,
        }
    }
}

/// Writes a string without quotes, unless it could be taken for another reply.
fn write_text(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let is_plain = bytes.iter().all(|byte| (b' '..=b'~').contains(byte));
    let text = String::from_utf8_lossy(bytes);
    if !is_plain || text.trim() != text || text.is_empty() || text.starts_with(['(', '[', '{', '>', '-', '"']) {
        return write!(f, "\"{}\"", bytes.escape_ascii());
    }
    if text.parse::<i64>().is_ok() { write!(f, "\"{text}\"") } else { f.write_str(&text) }
}

/// Writes a reply as scenarios do: texts without quotes, errors with their minus, messages of RESP3 with their `>`.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |items: Vec<String>| items.join(", ");
        match self {
            Self::Nil => f.write_str("(nil)"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Text(bytes) => write_text(bytes, f),
            Self::Status(text) => f.write_str(text),
            Self::List(items) => write!(f, "[{}]", list(items.iter().map(Self::to_string).collect())),
            Self::Push(items) => write!(f, ">[{}]", list(items.iter().map(Self::to_string).collect())),
            Self::Map(pairs) => write!(f, "{{{}}}", list(pairs.iter().map(|(k, v)| format!("{k}: {v}")).collect())),
            Self::Other(text) => write!(f, "({text})"),
            Self::Error(line) => write!(f, "-{line}"),
            Self::Closed => f.write_str("(closed)"),
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("nil"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Text(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Status(text) => f.write_str(text),
            Self::List(items) | Self::Push(items) => f.debug_list().entries(items).finish(),
            Self::Map(pairs) => f.debug_map().entries(pairs.iter().map(|(k, v)| (k, v))).finish(),
            Self::Other(text) => write!(f, "<{text}>"),
            Self::Error(line) => write!(f, "(error) {line}"),
            Self::Closed => f.write_str("<connection closed>"),
        }
    }
}
