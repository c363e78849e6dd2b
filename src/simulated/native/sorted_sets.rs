//! The server's own commands on Sorted Sets.

use super::{propagate, read, write, wrong_type};
use crate::server::faults::{self, Fault};
use crate::server::keyspace::{Entry, Value};
use crate::server::members::{self, Members, Score};
use crate::server::reply::Reply;

pub(super) fn add(db: i32, key: &[u8], score: &[u8], member: &[u8]) -> Reply {
    let Some(score) = Score::parse(score) else { return Reply::error("ERR value is not a valid float") };
    let mut entry = read(db, key).unwrap_or(Entry { value: Value::SortedSet(Members::new()), expiry: None });
    let Value::SortedSet(members) = &mut entry.value else { return wrong_type() };
    let before = members.insert(member.to_vec(), score);
    if before != Some(score) {
        propagate(db, [b"ZADD".as_slice(), key, score.0.to_string().as_bytes(), member]);
        write(db, key, Some(entry), &["zadd"]);
    }
    Reply::Integer(i64::from(before.is_none()))
}

pub(super) fn remove(db: i32, key: &[u8], member: &[u8]) -> Reply {
    let Some(entry) = read(db, key) else { return Reply::Integer(0) };
    match take_member(db, key, entry, Some(member), [b"ZREM".as_slice(), key, member], &["zrem", "del"]) {
        Ok(taken) => Reply::Integer(i64::from(taken.is_some())),
        Err(refusal) => refusal,
    }
}

pub(super) fn pop_min(db: i32, key: &[u8]) -> Reply {
    let Some(entry) = read(db, key) else { return Reply::Array(Vec::new()) };
    match take_member(db, key, entry, None, [b"ZPOPMIN".as_slice(), key], &["zpopmin", "del"]) {
        Ok(taken) => Reply::Array(taken.into_iter().flat_map(pair).collect()),
        Err(refusal) => refusal,
    }
}

/// Removes a member of a Sorted Set, or the one with the lowest score if `member` is `None`. The key is deleted with its last
/// member, and the second event is sent for that.
fn take_member<'w>(
    db: i32,
    key: &[u8],
    mut entry: Entry,
    member: Option<&[u8]>,
    effect: impl IntoIterator<Item = &'w [u8]>,
    events: &[&'static str; 2],
) -> Result<Option<(Vec<u8>, Score)>, Reply> {
    let Value::SortedSet(members) = &mut entry.value else { return Err(wrong_type()) };
    let lowest = members::lowest(members).map(|(member, _)| member.clone());
    let Some(taken) = member.map(<[u8]>::to_vec).or(lowest).and_then(|member| members.remove_entry(&member)) else {
        return Ok(None);
    };
    let is_last = members.is_empty();
    propagate(db, effect);
    let sent = match is_last {
        _ if faults::has(Fault::MemberEventsLost) => &[],
        true => &events[..],
        false => &events[..1],
    };
    write(db, key, (!is_last).then_some(entry), sent);
    Ok(Some(taken))
}

/// Runs `ZRANGE key 0 -1 WITHSCORES`.
pub(super) fn range(db: i32, key: &[u8]) -> Reply {
    let Some(entry) = read(db, key) else { return Reply::Array(Vec::new()) };
    let Value::SortedSet(members) = entry.value else { return wrong_type() };
    let mut pairs: Vec<_> = members.into_iter().collect();
    pairs.sort_by(|(one, score), (other, other_score)| (score, one).cmp(&(other_score, other)));
    Reply::Array(pairs.into_iter().flat_map(pair).collect())
}

fn pair((member, score): (Vec<u8>, Score)) -> [Reply; 2] {
    [Reply::Bytes(member), Reply::Bytes(score.0.to_string().into_bytes())]
}
