//! The acts: one function for each operation of a module.

use std::ffi::CString;

use redis_lock::server::{
    self, ContextFlags, Event, Key, Mode, OwnedString, Probe, Slot as Whose, UnixMs, ValueType, now_ms,
};

use super::Witness;
use super::state::{Errand, note, with};

/// The context of the witness.
pub type Context<'c> = server::Context<'c, Witness>;
/// The arguments of an act.
pub type Words<'w> = &'w [Vec<u8>];

/// The reply of an act, `None` if it does not reply now.
pub type Outcome = Option<String>;

/// `ENTER name`: gives this client a name. Replies with the number of clients that have one.
pub fn enter(ctx: &mut Context<'_>, words: Words<'_>) -> Outcome {
    let (client, name) = (ctx.client_id(), text(words, 0));
    with(ctx.server(), |state| state.names.insert(client, name));
    Some(with(ctx.server(), |state| state.names.len()).to_string())
}

/// `LISTEN`: subscribes to events, and empties the trace.
pub fn listen(ctx: &mut Context<'_>, _: Words<'_>) -> Outcome {
    server::subscribe::<Witness>();
    with(ctx.server(), |state| state.lines.clear());
    done()
}

/// `LISTEN-TO-SORTED-SETS`: subscribes to the events of Sorted Sets.
pub fn listen_to_sorted_sets(_: &mut Context<'_>, _: Words<'_>) -> Outcome {
    server::subscribe_to_sorted_sets::<Witness>();
    done()
}

/// `BLOCK key...`: blocks the client on each of the keys, if the server allows it.
pub fn block(ctx: &mut Context<'_>, words: Words<'_>) -> Outcome {
    let client = ctx.client_id();
    let name = with(ctx.server(), |state| state.names.get(&client).cloned()).unwrap_or_else(|| "nobody".to_owned());
    let mut waits = false;
    for key in words {
        let id = with(ctx.server(), |state| state.next_id());
        let blocked = ctx.open(OwnedString::new(key).as_ref(), Mode::Read).block(id);
        note(ctx.server(), format!("{} {name}", if blocked.is_some() { "blocked" } else { "not blocked" }));
        waits |= blocked.is_some();
        if let Some(blocked) = blocked {
            with(ctx.server(), |state| state.add(name.clone(), blocked));
        }
    }
    if waits { None } else { Some("not blocked".to_owned()) }
}

/// `UNBLOCK name...`: unblocks clients. The trace shows the calls that the server makes inside.
pub fn unblock(ctx: &mut Context<'_>, words: Words<'_>) -> Outcome {
    for name in words {
        let id = with(ctx.server(), |state| state.ticket_of(name))?;
        let name = String::from_utf8_lossy(name);
        note(ctx.server(), format!("unblock {name} {{"));
        server::unblock::<Witness>(ctx.server_mut(), id);
        note(ctx.server(), "}".to_owned());
    }
    done()
}

/// `OPEN key [WRITE]`: replies with the value. The trace shows the calls that the server makes inside.
pub fn open(ctx: &mut Context<'_>, words: Words<'_>) -> Outcome {
    let mode = if words.len() > 1 { Mode::Write } else { Mode::Read };
    note(ctx.server(), format!("open {} {{", text(words, 0)));
    let seen = look(&ctx.open(name(words).as_ref(), mode));
    note(ctx.server(), "}".to_owned());
    Some(seen)
}

/// `BRINK key`: sets the key so that it expires with this millisecond, and replies whether it still exists. Repeats an attempt
/// that takes longer, without a trace.
pub fn brink(ctx: &mut Context<'_>, words: Words<'_>) -> Outcome {
    let (name, value, traced) = (name(words), OwnedString::new(b"here"), with(ctx.server(), |state| state.lines.len()));
    loop {
        let now = now_ms();
        ctx.open(name.as_ref(), Mode::Write).set_string(value.as_ref(), Some(now));
        let seen = ctx.open(name.as_ref(), Mode::Read).string() == b"here";
        if now_ms() == now {
            with(ctx.server(), |state| state.lines.truncate(traced));
            return Some(if seen { "still here" } else { "gone" }.to_owned());
        }
    }
}

/// `SET key value [ms]`: sets a String, which expires after `ms` milliseconds.
pub fn set(ctx: &mut Context<'_>, words: Words<'_>) -> Outcome {
    let (name, value, expiry) = (name(words), string(words, 1), end(words, 2));
    let mut key = ctx.open(name.as_ref(), Mode::Write);
    key.set_string(value.as_ref(), expiry);
    let replicated = key.replicate_set(value.as_ref(), expiry.map(|end| end.to_string()).as_deref().map(str::as_bytes));
    key.signal(if expiry.is_some() { &[Event::SET, Event::EXPIRE] } else { &[Event::SET] });
    replicated.then(done)?
}

/// `HSET key field value`: sets a field of a Hash.
pub fn hset(ctx: &mut Context<'_>, words: Words<'_>) -> Outcome {
    let (name, field, value) = (name(words), string(words, 1), string(words, 2));
    let mut key = ctx.open(name.as_ref(), Mode::Write);
    key.set_field(field.as_ref(), value.as_ref());
    let replicated = key.replicate_hset(field.as_ref(), value.as_ref());
    key.signal(&[Event::HSET]);
    replicated.then(done)?
}

/// `ZADD key score member`: sets the score of a member of a Sorted Set.
pub fn zadd(ctx: &mut Context<'_>, words: Words<'_>) -> Outcome {
    let (name, score, member) = (name(words), text(words, 1), string(words, 2));
    let mut key = ctx.open(name.as_ref(), Mode::Write);
    key.set_score(member.as_ref(), score.parse().ok()?);
    let replicated = key.replicate_zadd(score.as_bytes(), member.as_ref());
    key.signal(&[Event::ZADD]);
    replicated.then(done)?
}

/// `ZREM key member`: removes a member of a Sorted Set. Replies with the remaining value.
pub fn zrem(ctx: &mut Context<'_>, words: Words<'_>) -> Outcome {
    let (name, member) = (name(words), string(words, 1));
    let mut key = ctx.open(name.as_ref(), Mode::Write);
    key.remove_member(member.as_ref());
    let replicated = key.replicate_zrem(member.as_ref());
    let is_last = key.is_empty();
    key.signal(if is_last { &[Event::ZREM, Event::DEL] } else { &[Event::ZREM] });
    replicated.then(|| look(&key))
}

/// `ZSCORE key member`: replies with the score of a member.
pub fn zscore(ctx: &mut Context<'_>, words: Words<'_>) -> Outcome {
    let (name, member) = (name(words), string(words, 1));
    let score = ctx.open(name.as_ref(), Mode::Read).score(member.as_ref());
    Some(score.map_or("none".to_owned(), |score| score.to_string()))
}

/// `BELOW key score most`: counts the members with a lower score, up to `most`.
pub fn below(ctx: &mut Context<'_>, words: Words<'_>) -> Outcome {
    let (name, score, most) = (name(words), text(words, 1).parse().ok()?, text(words, 2).parse().ok()?);
    Some(ctx.open(name.as_ref(), Mode::Read).count_below(score, most).to_string())
}

/// `EXPIRE key ms`: sets the expiry time of the key to `ms` milliseconds from now.
pub fn expire(ctx: &mut Context<'_>, words: Words<'_>) -> Outcome {
    let (name, end) = (name(words), end(words, 1)?);
    let mut key = ctx.open(name.as_ref(), Mode::Write);
    key.set_expiry(end);
    let replicated = key.replicate_pexpireat(end.to_string().as_bytes());
    key.signal(&[Event::EXPIRE]);
    replicated.then(done)?
}

/// `DEL key`: deletes the key.
pub fn del(ctx: &mut Context<'_>, words: Words<'_>) -> Outcome {
    let name = name(words);
    let mut key = ctx.open(name.as_ref(), Mode::Write);
    key.delete();
    let replicated = key.replicate_del();
    key.signal(&[Event::DEL]);
    replicated.then(done)?
}

/// `CALL key command words...`: calls a command of the server for other keys, while this key is open for writing. Replies whether
/// the server has executed it.
pub fn call(ctx: &mut Context<'_>, words: Words<'_>) -> Outcome {
    let (name, command) = (name(words), CString::new(text(words, 1)).ok()?);
    let arguments: Vec<OwnedString> = words.iter().skip(2).map(|word| OwnedString::new(word)).collect();
    let arguments: Vec<_> = arguments.iter().map(OwnedString::as_ref).collect();
    yes_or_no(ctx.open(name.as_ref(), Mode::Write).call_alongside(&command, &arguments))
}

/// `PUBLISH channel message`: publishes a message. Replies with the number of subscribers that got it.
pub fn publish(_: &mut Context<'_>, words: Words<'_>) -> Outcome {
    Some(server::publish(name(words).as_ref(), string(words, 1).as_ref()).to_string())
}

/// `REPORT channel`: from now on, also publishes the line of each event on the channel.
pub fn report(ctx: &mut Context<'_>, words: Words<'_>) -> Outcome {
    with(ctx.server(), |state| state.reported_on = words.first().cloned());
    done()
}

/// `MAY-PUBLISH`: replies whether a message stays out of replies.
pub fn may_publish(_: &mut Context<'_>, _: Words<'_>) -> Outcome {
    yes_or_no(server::may_publish())
}

/// `MAY-PUBLISH-ON channel`: replies whether the user of the connection may publish on the channel.
pub fn may_publish_on(ctx: &mut Context<'_>, words: Words<'_>) -> Outcome {
    yes_or_no(ctx.may_publish_on(name(words).as_ref()))
}

/// `SUBSCRIBERS channel`: replies with the number of subscribers.
pub fn subscribers(_: &mut Context<'_>, words: Words<'_>) -> Outcome {
    Some(server::subscribers(name(words).as_ref()).to_string())
}

/// `LATER ms [act words...]`: makes the timer run an act after `ms` milliseconds, in this database.
pub fn later(ctx: &mut Context<'_>, words: Words<'_>) -> Outcome {
    let (due, db, words) = (end(words, 0)?, ctx.db(), words.get(1..).unwrap_or_default().to_vec());
    with(ctx.server(), |state| state.errands.push(Errand { due, db, words }));
    server::set_timer::<Witness>(due);
    done()
}

/// `CRON`: replies with the interval of the server's cron, if it has run since the last call.
pub fn cron(ctx: &mut Context<'_>, _: Words<'_>) -> Outcome {
    Some(with(ctx.server(), |state| state.cron.take()).map_or("never".to_owned(), |ms| format!("every {ms} ms")))
}

/// `FLAGS`: replies with the flags of the context.
pub fn flags(ctx: &mut Context<'_>, _: Words<'_>) -> Outcome {
    const KNOWN: [(ContextFlags, &str); 6] = [
        (ContextFlags::REPLICA, "replica"),
        (ContextFlags::SCRIPT, "script"),
        (ContextFlags::TRANSACTION, "transaction"),
        (ContextFlags::CLUSTER, "cluster"),
        (ContextFlags::LOADING, "loading"),
        (ContextFlags::DENY_BLOCKING, "deny-blocking"),
    ];
    let flags = ctx.flags();
    let set = KNOWN.into_iter().filter_map(|(flag, name)| flags.contains(flag).then_some(name));
    let connection = ctx.has_connection().then_some("connection");
    Some(set.chain(connection).collect::<Vec<_>>().join(" "))
}

/// `TAKES-WRITES`: replies whether the server accepts writes.
pub fn accepts_writes(ctx: &mut Context<'_>, _: Words<'_>) -> Outcome {
    yes_or_no(ctx.accepts_writes())
}

/// `WELCOME key [HASH]`: replies whether the server would accept a client's write to this key.
pub fn welcome(ctx: &mut Context<'_>, words: Words<'_>) -> Outcome {
    let probe = if words.len() > 1 { Probe::Hash } else { Probe::String };
    yes_or_no(ctx.accepts_write_to(name(words).as_ref(), probe))
}

/// `SLOT key`: replies with the state of the slot of the key.
pub fn slot(ctx: &mut Context<'_>, words: Words<'_>) -> Outcome {
    let whose = match ctx.slot_of(name(words).as_ref()) {
        Whose::Ours => "ours",
        Whose::Elsewhere => "elsewhere",
        Whose::Unserved => "unserved",
    };
    Some(whose.to_owned())
}

/// Returns the value of a key and its expiry time as a text.
fn look(key: &Key<'_, '_, Witness>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let value = match key.value_type() {
        ValueType::Empty => return "empty".to_owned(),
        ValueType::String => text(key.string()),
        ValueType::Hash => {
            let pair = |field: Option<&[u8]>, value: &[u8]| format!("{}={}", text(field.unwrap_or(b"?")), text(value));
            key.only_field(None, pair).unwrap_or_else(|| "hash".to_owned())
        }
        ValueType::SortedSet => {
            let (lowest, highest) = (key.lowest(), key.highest_score().unwrap_or(f64::NAN));
            let (member, score) =
                lowest.map_or((String::new(), f64::NAN), |(it, score)| (text(it.as_ref().bytes()), score));
            format!("{} from {member}={score} to {highest}", key.member_count())
        }
        ValueType::Other => "other".to_owned(),
    };
    match key.expiry() {
        Some(end) => format!("{value} until {end}"),
        None => value,
    }
}

fn name(words: Words<'_>) -> OwnedString {
    string(words, 0)
}

fn string(words: Words<'_>, number: usize) -> OwnedString {
    OwnedString::new(words.get(number).map_or(b"", Vec::as_slice))
}

fn text(words: Words<'_>, number: usize) -> String {
    words.get(number).map(|word| String::from_utf8_lossy(word).into_owned()).unwrap_or_default()
}

/// Returns the time that is as many milliseconds from now as the word says.
fn end(words: Words<'_>, number: usize) -> Option<UnixMs> {
    text(words, number).parse::<UnixMs>().ok().map(|ms| now_ms() + ms)
}

fn yes_or_no(yes: bool) -> Outcome {
    Some(if yes { "yes" } else { "no" }.to_owned())
}

fn done() -> Outcome {
    Some("done".to_owned())
}
