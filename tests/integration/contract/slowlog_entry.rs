//! The entries of LOCK.SLOWLOG, for its tests.

use support::{Client, Reply, Server, Setup};

/// An entry as the command lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub id: i64,
    pub ended_at: i64,
    pub waited_ms: i64,
    pub db: i64,
    pub key: Vec<u8>,
    pub token: Vec<u8>,
    pub kind: String,
    pub end: String,
    pub others: i64,
}

/// Starts a server that logs every wait.
#[track_caller]
pub fn logs_every_wait() -> Server {
    Setup::new().config("lock.slowlog-ms 0").start()
}

/// Returns the entries that GET lists with this count.
#[track_caller]
pub fn entries(client: &mut Client, count: &str) -> Vec<Entry> {
    let list = client.run(format!("LOCK.SLOWLOG GET {count}").trim_end());
    list.items().iter().map(entry_of).collect()
}

/// Returns the tokens of these entries.
#[track_caller]
pub fn tokens(client: &mut Client, count: &str) -> Vec<String> {
    entries(client, count).into_iter().map(|entry| String::from_utf8(entry.token).expect("a text")).collect()
}

fn entry_of(entry: &Reply) -> Entry {
    let [id, ended_at, waited_ms, db, key, token, kind, end, others] = entry.items() else {
        panic!("nine fields: {entry:?}")
    };
    Entry {
        id: id.int(),
        ended_at: ended_at.int(),
        waited_ms: waited_ms.int(),
        db: db.int(),
        key: key.bytes().to_vec(),
        token: token.bytes().to_vec(),
        kind: kind.string(),
        end: end.string(),
        others: others.int(),
    }
}
