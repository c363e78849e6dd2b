//! Commands on connections and on the server itself.

use std::time::Duration;

use super::ClientId;
use super::blocked;
use super::channels;
use super::client::{Client, Sent};
use super::event_log::LoggedEvent;
use super::faults::{self, Fault};
use super::node_state;
use super::notify;
use super::reply::Reply;
use super::setting::{self, Setting};

/// Runs a command that works on no keys. Returns `None` for any other command.
pub(super) fn run(client: ClientId, sent: &Sent) -> Option<Reply> {
    let words = &sent.words;
    let word = |number: usize| words.get(number).map(|word| word.to_ascii_uppercase()).unwrap_or_default();
    Some(match (word(0).as_slice(), word(1).as_slice()) {
        (b"PING", _) => ping(client),
        (b"HELLO", version) => hello(client, number(version)),
        (b"QUIT", _) => {
            node_state::with(|node| node.clients.get_mut(&client).map(|client| client.closing = true));
            Reply::OK
        }
        (b"SELECT", db) => select(client, number(db)),
        (b"MULTI", _) => multi(client),
        (b"DISCARD", _) => {
            node_state::with(|node| {
                node.clients.get_mut(&client).map(|client| (client.transaction, client.is_spoiled) = (None, false))
            });
            Reply::OK
        }
        (b"CONFIG", b"SET") => config_set(words),
        (b"CLIENT", b"ID") => Reply::Integer(client),
        (b"CLIENT", b"KILL") => kill(client, number(&word(3))),
        (b"CLIENT", b"UNBLOCK") => unblock(number(&word(2)), word(3) == b"ERROR"),
        (b"CLIENT", b"PAUSE") => pause(number(&word(2))),
        (b"CLIENT", b"UNPAUSE") => pause(Some(0)),
        (b"DEBUG", b"SLEEP") => stall(&word(2)),
        (b"DEBUG", b"RELOAD") => {
            node_state::with(|node| node.note_keyspace());
            // The server first flushes the old keys, then loads them again. It notifies the module of both.
            notify::if_subscribed(|hooks| (hooks.keyspace_changed)());
            notify::if_subscribed(|hooks| (hooks.keyspace_changed)());
            Reply::OK
        }
        _ => return channels::run(client, sent),
    })
}

fn ping(client: ClientId) -> Reply {
    let listens_only = node_state::with(|node| node.clients.get(&client).is_some_and(Client::listens_only));
    if listens_only { Reply::Array(vec![Reply::bytes(b"pong"), Reply::bytes(b"")]) } else { Reply::Status("PONG") }
}

fn hello(client: ClientId, version: Option<i64>) -> Reply {
    let Some(version) = version.filter(|version| [2, 3].contains(version)) else {
        return Reply::error("NOPROTO unsupported protocol version");
    };
    node_state::with(|node| node.clients.get_mut(&client).map(|client| client.resp3 = version == 3));
    Reply::Map(vec![(Reply::bytes(b"proto"), Reply::Integer(version))])
}

/// Advances the time while the command runs, by this number of seconds.
fn stall(seconds: &[u8]) -> Reply {
    let seconds = std::str::from_utf8(seconds).ok().and_then(|word| word.parse().ok());
    match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(length) => {
            node_state::pass_us(i64::try_from(length.as_micros()).unwrap_or(i64::MAX));
            Reply::OK
        }
        None => Reply::error("ERR value is not a valid float"),
    }
}

fn number(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn select(client: ClientId, db: Option<i64>) -> Reply {
    let db = db.and_then(|db| i32::try_from(db).ok());
    node_state::with(|node| match db.filter(|&db| node.keyspace.has_db(db)) {
        Some(db) => {
            if let Some(client) = node.clients.get_mut(&client) {
                client.db = db;
            }
            Reply::OK
        }
        None => Reply::error("ERR DB index is out of range"),
    })
}

fn multi(client: ClientId) -> Reply {
    node_state::with(|node| match node.clients.get_mut(&client) {
        Some(client) if client.transaction.is_none() => {
            client.transaction = Some(Vec::new());
            Reply::OK
        }
        _ => Reply::error("ERR MULTI calls can not be nested"),
    })
}

/// Runs `CLIENT KILL ID id`. A client cannot close its own connection this way.
fn kill(client: ClientId, killed: Option<i64>) -> Reply {
    match killed.filter(|&killed| killed != client && node_state::with(|node| node.clients.contains_key(&killed))) {
        None => Reply::Integer(0),
        Some(killed) => {
            blocked::close(killed);
            Reply::Integer(1)
        }
    }
}

fn unblock(client: Option<i64>, with_error: bool) -> Reply {
    let id = client.and_then(|client| node_state::with(|node| node.clients.get(&client)?.blocked.zip(Some(client))));
    let Some((id, client)) = id.filter(|&(id, _)| blocked::dismiss(id)) else { return Reply::Integer(0) };
    node_state::with(|node| node.note(LoggedEvent::ClientUnblocked { client }));
    let id = if faults::has(Fault::OtherClientUnblocked) { blocked::other_than(id) } else { id };
    if with_error {
        blocked::refuse(id, "UNBLOCKED client unblocked via CLIENT UNBLOCK");
    } else {
        blocked::time_out(id);
    }
    Reply::Integer(1)
}

fn pause(ms: Option<i64>) -> Reply {
    let Some(ms) = ms else { return Reply::error("ERR timeout is not an integer or out of range") };
    node_state::with(|node| node.blockers.paused_until = Some(node.now_ms().saturating_add(ms)));
    Reply::OK
}

/// Runs `CONFIG SET name value` for all nodes. The module is notified if the setting is its own.
fn config_set(words: &[Vec<u8>]) -> Reply {
    let [_, _, name, value] = words else { return Reply::error("ERR wrong number of arguments") };
    let (own_name, settings) = node_state::with(|node| ([node.hooks.name, b"."].concat(), node.hooks.settings));
    let is_named = |setting: &&Setting| name.strip_prefix(&*own_name) == Some(setting.name.to_bytes());
    let of_module = settings.iter().copied().find(is_named);
    let value = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
    match of_module.or_else(|| setting::of_server(name)).zip(value) {
        Some((setting, value)) if (setting.min..=setting.max).contains(&value) => {
            setting.set(value);
            if of_module.is_some() && !faults::has(Fault::SettingNotAnnounced) {
                node_state::on_each(|| notify::always(|hooks| (hooks.setting_changed)()));
            }
            Reply::OK
        }
        _ => Reply::error("ERR CONFIG SET failed"),
    }
}
