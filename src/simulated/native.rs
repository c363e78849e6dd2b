//! The server's own commands on keys. Only the commands and options that matter to the module are implemented.

mod sorted_sets;

use std::collections::BTreeMap;
use std::rc::Rc;

use super::UnixMs;
use super::event_log::{LoggedEvent, Writer};
use super::expiry;
use super::faults::{self, Fault};
use super::keyspace::{Entry, Value};
use super::node_state;
use super::notify;
use super::reply::Reply;
use super::stream::Effect;

/// Runs a command on keys, as for a client of a master. Returns `None` for an unknown command.
pub(super) fn run(db: i32, words: &[Vec<u8>]) -> Option<Reply> {
    let name = words.first()?.to_ascii_uppercase();
    let word = |number: usize| words.get(number).map_or(&[][..], Vec::as_slice);
    let (key, value) = (word(1), word(2));
    Some(match name.as_slice() {
        b"GET" => get(db, key),
        b"EXISTS" => Reply::Integer(i64::from(expiry::expire(db, key))),
        b"PEXPIRETIME" => Reply::Integer(read(db, key).map_or(-2, |entry| entry.expiry.unwrap_or(-1))),
        b"PTTL" => {
            Reply::Integer(read(db, key).map_or(-2, |entry| entry.expiry.map_or(-1, |at| at.saturating_sub(now()))))
        }
        b"SET" => set(db, words),
        b"HSET" => hset(db, key, value, word(3)),
        b"HDEL" => hdel(db, key, value),
        b"ZADD" => sorted_sets::add(db, key, value, word(3)),
        b"ZREM" => sorted_sets::remove(db, key, value),
        b"ZPOPMIN" => sorted_sets::pop_min(db, key),
        b"ZRANGE" => sorted_sets::range(db, key),
        b"LPUSH" => lpush(db, key, value),
        b"DEL" | b"UNLINK" => Reply::Integer(words.iter().skip(1).map(|key| i64::from(delete(db, key))).sum()),
        b"GETDEL" => {
            let reply = get(db, key);
            delete(db, key);
            reply
        }
        b"PEXPIRE" => expire_at(db, key, integer(value).map(|ms| now().saturating_add(ms))),
        b"PEXPIREAT" => expire_at(db, key, integer(value)),
        b"PERSIST" => persist(db, key),
        b"RENAME" => rename(db, key, value),
        b"COPY" => copy(db, key, value),
        b"RESTORE" => restore(db, key, integer(value), word(3)),
        b"MOVE" => move_to(db, key, integer(value)),
        b"DBSIZE" => {
            Reply::Integer(node_state::with(|node| i64::try_from(node.keyspace.of(db).count()).unwrap_or(i64::MAX)))
        }
        b"FLUSHDB" => flush(db, Some(db)),
        b"FLUSHALL" => flush(db, None),
        b"SWAPDB" => swap(db, integer(key), integer(value)),
        _ => return None,
    })
}

/// Returns whether a command writes. The server refuses such a command where it refuses writes.
pub(super) fn is_write(name: &[u8]) -> bool {
    const READS: [&[u8]; 5] = [b"GET", b"EXISTS", b"PTTL", b"PEXPIRETIME", b"ZRANGE"];
    const WRITES: [&[u8]; 21] = [
        b"SET",
        b"HSET",
        b"HDEL",
        b"ZADD",
        b"ZREM",
        b"ZPOPMIN",
        b"LPUSH",
        b"DEL",
        b"UNLINK",
        b"GETDEL",
        b"PEXPIRE",
        b"PEXPIREAT",
        b"PERSIST",
        b"RENAME",
        b"COPY",
        b"RESTORE",
        b"MOVE",
        b"FLUSHDB",
        b"FLUSHALL",
        b"SWAPDB",
        b"EVAL",
    ];
    let name = name.to_ascii_uppercase();
    !READS.contains(&name.as_slice()) && WRITES.contains(&name.as_slice())
}

/// Returns the arguments of a command that are keys, for the check of their slots.
pub(super) fn keys_of(words: &[Vec<u8>]) -> &[Vec<u8>] {
    let name = words.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default();
    match name.as_slice() {
        b"DEL" | b"UNLINK" => words.get(1..).unwrap_or_default(),
        b"RENAME" | b"COPY" => words.get(1..3).unwrap_or_default(),
        b"DBSIZE" | b"FLUSHDB" | b"FLUSHALL" | b"SWAPDB" | b"EVAL" => &[],
        _ => words.get(1..2).unwrap_or_default(),
    }
}

/// Runs a command from a master or an AOF.
pub(super) fn replay(effect: &Effect) {
    node_state::with(|node| node.running.replay = true);
    run(effect.db, &effect.words);
    node_state::with(|node| {
        node.running.replay = false;
        // A replica passes on the stream of its master unchanged, so the effects of its own commands are dropped.
        node.unit.clear();
    });
}

fn now() -> UnixMs {
    node_state::now_ms()
}

fn integer(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn read(db: i32, key: &[u8]) -> Option<Entry> {
    if expiry::expire(db, key) { node_state::with(|node| node.keyspace.get(db, key).cloned()) } else { None }
}

fn not_an_integer() -> Reply {
    Reply::error("ERR value is not an integer or out of range")
}

fn wrong_type() -> Reply {
    Reply::error("WRONGTYPE Operation against a key holding the wrong kind of value")
}

/// Changes a key, and notifies the module with these events.
fn write(db: i32, key: &[u8], entry: Option<Entry>, events: &[&'static str]) {
    put(db, key, entry, Writer::Command);
    send_events(db, key, events);
}

fn put(db: i32, key: &[u8], entry: Option<Entry>, writer: Writer) {
    node_state::with(|node| {
        node.keyspace.set(db, key, entry.clone());
        node.note(LoggedEvent::Wrote { db, key: Rc::from(key), entry, writer });
    });
}

fn send_events(db: i32, key: &[u8], events: &[&'static str]) {
    let subscribes_sorted_sets = node_state::with(|node| node.subscribes_sorted_sets);
    let is_notified = |event: &&&str| {
        NOTIFIED_EVENTS.contains(*event) || subscribes_sorted_sets && SORTED_SET_EVENTS.contains(*event)
    };
    for event in events.iter().filter(is_notified) {
        notify::key_event(db, event, key);
    }
}

/// The events of which every module is notified: a key is deleted or replaced, or its expiry changes.
const NOTIFIED_EVENTS: [&str; 11] = [
    "del",
    "expired",
    "expire",
    "persist",
    "rename_from",
    "rename_to",
    "move_from",
    "move_to",
    "copy_to",
    "restore",
    "evicted",
];

/// The events of Sorted Sets, of which a module is notified on request.
const SORTED_SET_EVENTS: [&str; 3] = ["zadd", "zrem", "zpopmin"];

fn propagate<'w>(db: i32, words: impl IntoIterator<Item = &'w [u8]>) {
    let effect = Effect::new(db, words);
    node_state::with(|node| node.unit.push(effect));
}

fn get(db: i32, key: &[u8]) -> Reply {
    match read(db, key).map(|entry| entry.value) {
        None => Reply::Nil,
        Some(Value::String(bytes)) => Reply::Bytes(bytes.to_vec()),
        Some(_) => wrong_type(),
    }
}

/// Runs `SET key value [NX] [KEEPTTL] [PX ms | PXAT time]`.
fn set(db: i32, words: &[Vec<u8>]) -> Reply {
    let [_, key, value, options @ ..] = words else { return Reply::error("ERR syntax error") };
    let before = read(db, key);
    let has = |option: &[u8]| options.iter().any(|word| word.eq_ignore_ascii_case(option));
    let number = |option: &[u8]| {
        let at = options.iter().position(|word| word.eq_ignore_ascii_case(option))?;
        options.get(at.saturating_add(1)).and_then(|word| integer(word))
    };
    if has(b"NX") && before.is_some() {
        return Reply::Nil;
    }
    let kept = before.and_then(|entry| entry.expiry).filter(|_| has(b"KEEPTTL"));
    let expiry = number(b"PX").map(|ms| now().saturating_add(ms)).or(number(b"PXAT")).or(kept);
    let entry = Entry { value: Value::String(Rc::from(value.as_slice())), expiry };
    propagate(db, set_words(key, value, expiry).iter().map(Vec::as_slice));
    write(db, key, Some(entry), if has(b"PX") || has(b"PXAT") { &["set", "expire"] } else { &["set"] });
    Reply::OK
}

/// Returns SET in the form in which it is replicated.
fn set_words(key: &[u8], value: &[u8], expiry: Option<UnixMs>) -> Vec<Vec<u8>> {
    let pxat = expiry.into_iter().flat_map(|at| [b"PXAT".to_vec(), at.to_string().into_bytes()]);
    [b"SET".to_vec(), key.to_vec(), value.to_vec()].into_iter().chain(pxat).collect()
}

fn hset(db: i32, key: &[u8], field: &[u8], value: &[u8]) -> Reply {
    let mut entry = read(db, key).unwrap_or(Entry { value: Value::Hash(BTreeMap::new()), expiry: None });
    let Value::Hash(fields) = &mut entry.value else { return wrong_type() };
    let is_new = fields.insert(field.to_vec(), value.to_vec()).is_none();
    propagate(db, [b"HSET".as_slice(), key, field, value]);
    write(db, key, Some(entry), &["hset"]);
    Reply::Integer(i64::from(is_new))
}

fn hdel(db: i32, key: &[u8], field: &[u8]) -> Reply {
    let Some(mut entry) = read(db, key) else { return Reply::Integer(0) };
    let Value::Hash(fields) = &mut entry.value else { return wrong_type() };
    if fields.remove(field).is_none() {
        return Reply::Integer(0);
    }
    let is_last = fields.is_empty();
    propagate(db, [b"HDEL".as_slice(), key, field]);
    write(db, key, (!is_last).then_some(entry), if is_last { &["hdel", "del"] } else { &["hdel"] });
    Reply::Integer(1)
}

fn lpush(db: i32, key: &[u8], value: &[u8]) -> Reply {
    let len = match read(db, key) {
        None => 1,
        Some(Entry { value: Value::Other(len), .. }) => len.saturating_add(1),
        Some(_) => return wrong_type(),
    };
    let expiry = node_state::with(|node| node.keyspace.get(db, key).and_then(|entry| entry.expiry));
    propagate(db, [b"LPUSH".as_slice(), key, value]);
    write(db, key, Some(Entry { value: Value::Other(len), expiry }), &["lpush"]);
    Reply::Integer(i64::try_from(len).unwrap_or(i64::MAX))
}

fn delete(db: i32, key: &[u8]) -> bool {
    let is_there = read(db, key).is_some();
    if is_there {
        propagate(db, [b"DEL".as_slice(), key]);
        write(db, key, None, &["del"]);
    }
    is_there
}

fn expire_at(db: i32, key: &[u8], at: Option<UnixMs>) -> Reply {
    let Some(at) = at else { return not_an_integer() };
    let Some(entry) = read(db, key) else { return Reply::Integer(0) };
    if at <= now() && !node_state::with(|node| node.running.replay) {
        let event = node_state::with(|node| node.kind.event_of_past_expiry());
        propagate(db, [b"DEL".as_slice(), key]);
        write(db, key, None, &[event]);
    } else {
        propagate(db, [b"PEXPIREAT".as_slice(), key, at.to_string().as_bytes()]);
        write(db, key, Some(Entry { expiry: Some(at), ..entry }), &["expire"]);
    }
    Reply::Integer(1)
}

fn persist(db: i32, key: &[u8]) -> Reply {
    let Some(entry) = read(db, key).filter(|entry| entry.expiry.is_some()) else { return Reply::Integer(0) };
    propagate(db, [b"PERSIST".as_slice(), key]);
    write(db, key, Some(Entry { expiry: None, ..entry }), &["persist"]);
    Reply::Integer(1)
}

fn rename(db: i32, from: &[u8], to: &[u8]) -> Reply {
    let Some(entry) = read(db, from) else { return Reply::error("ERR no such key") };
    if from == to {
        return Reply::OK;
    }
    expiry::expire(db, to);
    propagate(db, [b"RENAME".as_slice(), from, to]);
    // The server sends both events after both changes.
    put(db, from, None, Writer::Command);
    put(db, to, Some(entry), Writer::Arrival);
    send_events(db, from, &["rename_from"]);
    send_events(db, to, &["rename_to"]);
    Reply::OK
}

/// Runs `COPY from to REPLACE`.
fn copy(db: i32, from: &[u8], to: &[u8]) -> Reply {
    if from == to {
        return Reply::error("ERR source and destination objects are the same");
    }
    let Some(entry) = read(db, from) else { return Reply::Integer(0) };
    expiry::expire(db, to);
    propagate(db, [b"COPY".as_slice(), from, to, b"REPLACE"]);
    put(db, to, Some(entry), Writer::Arrival);
    send_events(db, to, &["copy_to"]);
    Reply::Integer(1)
}

/// Runs `RESTORE key ms value REPLACE`. The value is a plain string instead of the output of DUMP.
fn restore(db: i32, key: &[u8], ms: Option<i64>, value: &[u8]) -> Reply {
    let Some(ms) = ms else { return not_an_integer() };
    expiry::expire(db, key);
    let expiry = (ms > 0).then(|| now().saturating_add(ms));
    propagate(db, set_words(key, value, expiry).iter().map(Vec::as_slice));
    put(db, key, Some(Entry { value: Value::String(Rc::from(value)), expiry }), Writer::Arrival);
    send_events(db, key, &["restore"]);
    Reply::OK
}

/// Deletes a key as the server's eviction does.
pub(super) fn evict(db: i32, key: &[u8]) {
    propagate(db, [b"DEL".as_slice(), key]);
    write(db, key, None, &["evicted"]);
}

fn move_to(db: i32, key: &[u8], to: Option<i64>) -> Reply {
    let to = to.and_then(|to| i32::try_from(to).ok()).filter(|&to| node_state::with(|node| node.keyspace.has_db(to)));
    let Some(to) = to else { return Reply::error("ERR DB index is out of range") };
    if to == db {
        return Reply::error("ERR source and destination objects are the same");
    }
    let Some(entry) = read(db, key) else { return Reply::Integer(0) };
    if expiry::expire(to, key) {
        return Reply::Integer(0);
    }
    propagate(db, [b"MOVE".as_slice(), key, to.to_string().as_bytes()]);
    put(to, key, Some(entry), Writer::Arrival);
    put(db, key, None, Writer::Command);
    send_events(db, key, &["move_from"]);
    send_events(to, key, &["move_to"]);
    Reply::Integer(1)
}

fn flush(db: i32, of: Option<i32>) -> Reply {
    node_state::with(|node| {
        node.keyspace.clear(of);
        node.note_keyspace();
    });
    propagate(db, [if of.is_some() { b"FLUSHDB".as_slice() } else { b"FLUSHALL" }]);
    if !faults::has(Fault::FlushNotAnnounced) {
        notify::if_subscribed(|hooks| (hooks.keyspace_changed)());
    }
    Reply::OK
}

fn swap(db: i32, one: Option<i64>, other: Option<i64>) -> Reply {
    let number = |db: Option<i64>| db.and_then(|db| i32::try_from(db).ok());
    let has = |db: &i32| node_state::with(|node| node.keyspace.has_db(*db));
    let (Some(one), Some(other)) = (number(one).filter(has), number(other).filter(has)) else {
        return Reply::error("ERR DB index is out of range");
    };
    node_state::with(|node| {
        node.keyspace.swap(one, other);
        node.note_keyspace();
    });
    propagate(db, [b"SWAPDB".as_slice(), one.to_string().as_bytes(), other.to_string().as_bytes()]);
    if !faults::has(Fault::SwapNotAnnounced) {
        notify::if_subscribed(|hooks| (hooks.keyspace_changed)());
    }
    Reply::OK
}
