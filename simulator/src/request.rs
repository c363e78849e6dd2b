//! The LOCK commands that the clients of a history send.

use std::fmt;

/// The number of a token or owner.
pub type Identity = u16;

/// The number of a lock.
pub type LockNumber = u8;

/// The number of a shard channel.
pub type Channel = u8;

/// The period of the names: more than the clients and the strangers have together.
pub const NAMES: Identity = 20;

/// A name with unusual bytes.
const ODD_NAME: Identity = 4;

/// A name of the greatest length.
const LONG_NAME: Identity = 9;

/// The greatest number of bytes in a token.
const MAX_TOKEN: usize = 1024;

/// The forms of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Mutex,
    Reentrant,
    Share,
}

impl Form {
    pub const ALL: [Self; 3] = [Self::Mutex, Self::Reentrant, Self::Share];
}

/// A LOCK command about one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub lock: LockNumber,
    pub identity: Identity,
    pub verb: Verb,
}

/// The command and its options. All times are milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Take(Take),
    Release {
        hold: Option<i64>,
        lease: Option<i64>,
    },
    Extend {
        lease: i64,
        add: bool,
    },
    Fence,
    Info,
    Waiters {
        count: Option<u8>,
    },
    /// Lists all locks of the database.
    Queues {
        count: Option<u8>,
    },
    /// Words that are an invalid request.
    Nonsense(u8),
}

/// ACQUIRE, REENTER and SHARE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Take {
    pub form: Form,
    pub lease: Option<i64>,
    /// 0 means without an end.
    pub block: Option<i64>,
    /// ACQUIRE only.
    pub strict: bool,
    /// REENTER only.
    pub hold: Option<i64>,
    /// SHARE only.
    pub limit: Option<i64>,
    /// Only with a lease of 100 ms or more.
    pub session: bool,
    /// Only with a session, whose lease is at least as long.
    pub grace: Option<i64>,
    /// Only with BLOCK.
    pub max_waiters: Option<i64>,
    /// The channel on which the end of the wait is published. `None`: the reply ends the wait.
    pub notify: Option<Channel>,
}

/// Returns the name of a lock's key. The first one is also a key of python-redis-lock.
pub fn name_of(lock: LockNumber) -> String {
    if lock == 0 { "lock:door0".to_owned() } else { format!("door{lock}") }
}

/// Returns the key of a lock.
pub fn key_of(lock: LockNumber) -> Vec<u8> {
    name_of(lock).into_bytes()
}

/// Returns the name of a shard channel, which is in the slot of the lock with the same number.
pub fn channel_of(channel: Channel) -> Vec<u8> {
    format!("news{channel}").into_bytes()
}

/// Returns the key of the counter from which the holders of a lock draw fencing tokens.
pub fn counter_of(lock: LockNumber) -> Vec<u8> {
    format!("counter{lock}").into_bytes()
}

/// Returns the bytes of an identity. Most are short and plain. Some have unusual bytes, or the greatest length.
pub fn token_of(identity: Identity) -> Vec<u8> {
    let name = format!("t{identity}").into_bytes();
    match identity % NAMES {
        ODD_NAME => [&name, b"\0\r\n\xff \"'".as_slice()].concat(),
        LONG_NAME => [name, vec![b'.'; MAX_TOKEN]].concat()[..MAX_TOKEN].to_vec(),
        // These differ from another identity only in the case, in the bytes after a zero, or in the last byte.
        6 => format!("T{}", identity - 1).into_bytes(),
        7 => [&name, b"\0a".as_slice()].concat(),
        8 => format!("t{}\0b", identity - 1).into_bytes(),
        10 => [&token_of(identity - 1)[..MAX_TOKEN - 1], b"!".as_slice()].concat(),
        _ => name,
    }
}

/// Returns whether a name can be written in a script.
pub fn is_plain(identity: Identity) -> bool {
    ![ODD_NAME, LONG_NAME, 7, 8, 10].contains(&(identity % NAMES))
}

/// The terms of a requested session, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    pub lease: i64,
    pub grace: Option<i64>,
}

impl Take {
    /// Returns a request with only these options.
    pub fn plain(form: Form, lease: Option<i64>, block: Option<i64>, notify: Option<Channel>) -> Self {
        let (hold, limit, grace, max_waiters) = (None, None, None, None);
        Self { form, lease, block, strict: false, hold, limit, session: false, grace, max_waiters, notify }
    }

    /// Returns the terms of the requested session, if there is one.
    pub fn terms(&self) -> Option<Terms> {
        self.lease.filter(|_| self.session).map(|lease| Terms { lease, grace: self.grace })
    }

    /// Returns whether a request with this token is valid. NOTIFY needs a lease, BLOCK and a token without spaces.
    pub fn is_one(&self, token: &[u8]) -> bool {
        self.notify.is_none() || self.lease.is_some() && self.block.is_some() && !token.contains(&b' ')
    }
}

impl Request {
    /// Returns the command as words.
    pub fn words(&self) -> Vec<Vec<u8>> {
        let (key, token) = (key_of(self.lock), token_of(self.identity));
        let mut words = match &self.verb {
            Verb::Take(take) => match take.form {
                Form::Mutex => vec![b"LOCK.ACQUIRE".to_vec(), key, token],
                Form::Reentrant => vec![b"LOCK.REENTER".to_vec(), key, token],
                Form::Share => vec![b"LOCK.SHARE".to_vec(), key, token],
            },
            Verb::Release { .. } => vec![b"LOCK.RELEASE".to_vec(), key, token],
            Verb::Extend { .. } => vec![b"LOCK.EXTEND".to_vec(), key, token],
            Verb::Fence => vec![b"LOCK.FENCE".to_vec(), key, token, counter_of(self.lock)],
            Verb::Info => vec![b"LOCK.INFO".to_vec(), key],
            Verb::Waiters { .. } => vec![b"LOCK.WAITERS".to_vec(), key],
            Verb::Queues { .. } => vec![b"LOCK.QUEUES".to_vec()],
            Verb::Nonsense(kind) => return nonsense(*kind, key, token),
        };
        words.extend(self.options().into_iter().flat_map(|(word, number)| {
            [Some(word.as_bytes().to_vec()), number.map(|number| number.to_string().into_bytes())].into_iter().flatten()
        }));
        if let Verb::Take(Take { notify: Some(channel), .. }) = self.verb {
            words.extend([b"NOTIFY".to_vec(), channel_of(channel)]);
        }
        words
    }

    fn options(&self) -> Vec<(&'static str, Option<i64>)> {
        let mut options = Vec::new();
        let mut number = |word, value: Option<i64>| {
            options.extend(value.map(|value| match word {
                "PX" if value % 1000 == 0 => ("EX", Some(value / 1000)),
                _ => (word, Some(value)),
            }));
        };
        match &self.verb {
            Verb::Take(take) => {
                number("PX", take.lease);
                number("BLOCK", take.block);
                number("HOLD", take.hold);
                number("LIMIT", take.limit);
                number("GRACE", take.grace);
                number("MAXWAITERS", take.max_waiters);
                options.extend(take.strict.then_some(("NX", None)));
                options.extend(take.session.then_some(("SESSION", None)));
            }
            Verb::Release { hold, lease } => {
                number("HOLD", *hold);
                number("PX", *lease);
            }
            Verb::Extend { lease, add } => {
                number("PX", Some(*lease));
                options.extend(add.then_some(("ADD", None)));
            }
            Verb::Waiters { count } | Verb::Queues { count } => number("COUNT", count.map(i64::from)),
            _ => {}
        }
        options
    }
}

/// Returns words that every lock refuses.
fn nonsense(kind: u8, key: Vec<u8>, token: Vec<u8>) -> Vec<Vec<u8>> {
    let token = match kind % 15 {
        8 => Vec::new(),
        9 => vec![b'x'; MAX_TOKEN + 1],
        _ => token,
    };
    let tails: [&[&[u8]]; 15] = [
        &[b"PX", b"0"],
        &[b"PX", b"-1", b"BLOCK", b"0"],
        &[b"PX", b"10", b"EX", b"10"],
        &[b"BLOCK", b"x"],
        &[b"SESSION"],
        &[b"PX"],
        &[b"\xff\x00"],
        &[b"PX", b"9223372036854775807"],
        &[b"PX", b"100"],
        &[b"PX", b"100"],
        &[b"HOLD", b"1"],
        &[b"NX", b"nx"],
        &[b"PX", b"100", b"NOTIFY", b"news0"],
        &[b"BLOCK", b"100", b"NOTIFY", b"news0"],
        &[b"PX", b"100", b"BLOCK", b"100", b"NOTIFY", b""],
    ];
    let tail = tails[usize::from(kind) % tails.len()];
    let head = [b"LOCK.ACQUIRE".to_vec(), key, token];
    head.into_iter().chain(tail.iter().map(|word| word.to_vec())).collect()
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.words();
        const WIDTH: usize = 40;
        let shown = |word: &Vec<u8>| word[..word.len().min(WIDTH)].escape_ascii().to_string();
        let words: Vec<_> = words.iter().map(shown).collect();
        f.write_str(&words.join(" "))
    }
}
