//! The execution of a client's command: it is queued, postponed, refused or run.

use super::ClientId;
use super::blocked;
use super::channels;
use super::client::{Client, Output, Sent};
use super::connection;
use super::crash::crash;
use super::event_log::{LoggedEvent, Tag};
use super::native;
use super::node_state;
use super::refusal;
use super::reply::Reply;

/// The client that the server creates for a script.
const FAKE_CLIENT: ClientId = ClientId::MAX;

/// Runs the input of a client, until the client is blocked or the input is empty.
pub(super) fn run_all(client: ClientId) {
    while let Some(sent) = node_state::with(|node| {
        node.clients.get_mut(&client).filter(|client| client.is_free()).and_then(|client| client.input.pop_front())
    }) {
        if is_postponed(client, &sent) {
            return blocked::put_back(client, sent);
        }
        run(client, sent);
    }
}

/// Postpones a command that can write, while the server is paused. Returns whether the command is postponed.
fn is_postponed(client: ClientId, sent: &Sent) -> bool {
    node_state::with(|node| {
        let now = node.now_ms();
        let queued = node.clients.get(&client).and_then(|client| client.transaction.as_ref());
        let writes = |words: &[Vec<u8>]| words.first().is_some_and(|name| refusal::is_write(&node.commands, name));
        let is_exec = sent.words.first().is_some_and(|name| name.eq_ignore_ascii_case(b"EXEC"));
        let would_write = match queued {
            Some(queued) if is_exec => queued.iter().any(|sent| writes(&sent.words)),
            _ => writes(&sent.words),
        };
        let postponed = would_write && node.blockers.is_paused(now);
        if postponed && !node.postponed.contains(&client) {
            node.postponed.push(client);
        }
        postponed
    })
}

fn run(client: ClientId, sent: Sent) {
    let tag = sent.tag;
    let name = sent.words.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default();
    let is_queued = !matches!(name.as_slice(), b"EXEC" | b"DISCARD" | b"MULTI" | b"QUIT");
    let queued = if is_queued { queue(client, &sent) } else { None };
    node_state::with(|node| (node.running.client, node.running.since) = (Some(client), Some(node.now_ms())));
    let reply = match (queued, name.as_slice()) {
        _ if !channels::is_allowed(client, &name) => Some(Reply::error("ERR Can't execute this in this context")),
        (Some(reply), _) => Some(reply),
        (None, b"EXEC") => Some(exec(client)),
        (None, b"EVAL") => Some(one(client, &sent, true)),
        (None, _) => connection::run(client, &sent).or_else(|| outcome(client, &sent, false)),
    };
    node_state::with(|node| {
        node.propagate();
        if let Some(reply) = reply {
            node.reply(client, tag, reply);
        }
        (node.running.client, node.running.since) = (None, None);
        channels::push_deferred(node, client);
    });
}

/// Queues a command, if its client has begun a transaction. A command that is refused here makes EXEC fail.
fn queue(client: ClientId, sent: &Sent) -> Option<Reply> {
    let refusal = refusal::refusal(&sent.words);
    node_state::with(|node| {
        let entry = node.clients.get_mut(&client)?;
        let queue = entry.transaction.as_mut()?;
        entry.is_spoiled |= refusal.is_some();
        Some(refusal.unwrap_or_else(|| {
            queue.push(sent.clone());
            Reply::Status("QUEUED")
        }))
    })
}

/// Runs one command on keys. Returns `None` if it has blocked its client.
fn outcome(client: ClientId, sent: &Sent, inner: bool) -> Option<Reply> {
    // EXEC has checked all commands of a transaction before the first one runs.
    let is_looked_at = node_state::with(|node| node.running.transaction && !node.running.script);
    if let Some(refusal) = if is_looked_at { None } else { refusal::refusal(&sent.words) } {
        return Some(refusal);
    }
    let db = node_state::with(|node| node.clients.get(&client).map_or(0, |client| client.db));
    let name = sent.words.first().map(|name| name.to_ascii_lowercase()).unwrap_or_default();
    let command = std::str::from_utf8(&name).ok().and_then(|name| {
        node_state::with(|node| node.commands.get(name).map(|command| (command.handler, command.arity)))
    });
    match command {
        Some((_, arity)) if !fits(arity, sent.words.len()) => Some(Reply::error("ERR wrong number of arguments")),
        Some((handler, _)) => {
            node_state::look();
            let hooks = node_state::with(|node| {
                let listens = node.clients.get(&client).is_some_and(Client::is_subscribed);
                let refuses = listens && node.kind.blocks_no_subscriber();
                let denies_blocking = node.running.transaction || node.running.script || refuses;
                node.running.command = Some(sent.tag);
                node.running.blocked = false;
                node.note(LoggedEvent::Began { client, tag: sent.tag, db, denies_blocking });
                node.hooks
            });
            let stand_in = node_state::with(|node| node.running.script);
            (hooks.run)(handler, if stand_in { FAKE_CLIENT } else { client }, db, &sent.words);
            let reply = node_state::with(|node| {
                node.running.command = None;
                let replies = Reply::all_of(std::mem::take(&mut node.pieces));
                let blocked = node.running.blocked;
                node.note(LoggedEvent::Ended { tag: sent.tag, blocked });
                only_one(replies, blocked)
            });
            node_state::look();
            reply
        }
        None => {
            node_state::with(|node| node.running.command = Some(sent.tag));
            let reply = native::run(db, &sent.words);
            node_state::with(|node| node.running.command = None);
            Some(reply.unwrap_or_else(|| Reply::error("ERR unknown command")))
        }
    }
    .inspect(|reply| {
        if inner {
            node_state::with(|node| node.note(LoggedEvent::Inner { tag: sent.tag, reply: reply.clone() }));
        }
    })
}

fn only_one(mut replies: Vec<Reply>, blocked: bool) -> Option<Reply> {
    match (replies.pop(), replies.is_empty(), blocked) {
        (Some(reply), true, false) => Some(reply),
        (None, _, true) => None,
        _ => crash("a command that makes no reply, or two"),
    }
}

fn fits(arity: i32, len: usize) -> bool {
    let len = i32::try_from(len).unwrap_or(i32::MAX);
    if arity >= 0 { len == arity } else { len >= arity.saturating_neg() }
}

/// Runs a command inside a transaction, or the calls of a script.
fn one(client: ClientId, sent: &Sent, script: bool) -> Reply {
    if !script {
        return outcome(client, sent, true).unwrap_or_else(|| crash("a client is blocked in a transaction"));
    }
    let mut reply = Reply::Nil;
    for words in calls_of(sent.words.get(1).map_or(&[][..], Vec::as_slice)) {
        node_state::with(|node| node.running.script = true);
        let inner = outcome(client, &Sent { tag: sent.tag, words }, true);
        node_state::with(|node| node.running.script = false);
        reply = inner.unwrap_or_else(|| crash("a client is blocked in a script"));
        if matches!(reply, Reply::Error(_)) {
            break;
        }
    }
    reply
}

/// Returns the calls `redis.call('...', '...')` of a script, which may contain nothing else.
fn calls_of(script: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let script = String::from_utf8_lossy(script);
    let calls = script.split("redis.call(").skip(1);
    let arguments = calls.filter_map(|rest| rest.split(')').next());
    let words = |arguments: &str| {
        let bare = arguments.split(',').map(|word| word.trim().trim_matches(['\'', '"']));
        bare.map(|word| word.as_bytes().to_vec()).collect()
    };
    arguments.map(words).collect()
}

fn exec(client: ClientId) -> Reply {
    let (queued, is_spoiled) = node_state::with(|node| {
        let entry = node.clients.get_mut(&client);
        entry.map(|entry| (entry.transaction.take(), std::mem::take(&mut entry.is_spoiled))).unwrap_or_default()
    });
    let Some(queued) = queued else { return Reply::error("ERR EXEC without MULTI") };
    if is_spoiled || queued.iter().any(|sent| refusal::refusal(&sent.words).is_some()) {
        let refused = Reply::error("EXECABORT Transaction discarded because of previous errors.");
        let none_runs = queued.iter().map(|sent| LoggedEvent::Inner { tag: sent.tag, reply: refused.clone() });
        node_state::with(|node| none_runs.for_each(|note| node.note(note)));
        return refused;
    }
    let mut replies = Vec::new();
    for sent in &queued {
        node_state::with(|node| node.running.transaction = true);
        let is_script = sent.words.first().is_some_and(|name| name.eq_ignore_ascii_case(b"EVAL"));
        replies.push(connection::run(client, sent).unwrap_or_else(|| one(client, sent, is_script)));
        node_state::with(|node| {
            node.running.transaction = false;
            if let Some(client) = node.clients.get_mut(&client) {
                client.output.push(Output::Reply(sent.tag));
            }
        });
    }
    Reply::Array(replies)
}

/// Runs a command without a client and without the checks that could refuse it. Scenarios use it to interfere with keys.
pub(super) fn external_command(db: i32, words: &[Vec<u8>]) {
    const NO_CLIENT: Tag = Tag::MAX;
    node_state::with(|node| node.running.command = Some(NO_CLIENT));
    native::run(db, words);
    node_state::with(|node| {
        node.running.command = None;
        node.propagate();
    });
}
