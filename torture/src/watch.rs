//! Looks at one lock after the other: nobody may wait for one that is free, or has room for the share that he wants. What it
//! sees of the lines is noted as well.

use std::time::{Duration, Instant};

use support::Reply;

use crate::keys::Key;
use crate::link::Link;
use crate::token::Token;
use crate::world::World;

/// For how long a lock may look free to the first in line, when the server is held up by nothing.
const BOUND: Duration = Duration::from_millis(100);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// One look at a lock.
struct Look {
    sent: Instant,
    received: Instant,
    /// The first in line could have the lock.
    free: bool,
    line: Vec<Token>,
}

/// Watches until the run is over.
pub fn watch(world: &World, mut random: fastrand::Rng) {
    let mut links: [Option<Link>; 4] = Default::default();
    while world.goes_on() {
        let key = world.keys.any(&mut random);
        let slot = &mut links[key.database as usize];
        if let Some(mut link) = world.still(slot.take()).or_else(|| world.connect(key.database, false)) {
            let key = if random.bool() { key } else { contended(world, &mut link, key, &mut random) };
            *slot = (!key.is_watched() || examine(world, key, &mut link).is_some()).then_some(link);
        }
        world.rest(BETWEEN_LOOKS);
    }
}

/// One of the locks of this database that are waited for most, or this one.
fn contended<'w>(world: &'w World, link: &mut Link, key: &'w Key, random: &mut fastrand::Rng) -> &'w Key {
    let names = link.contended();
    random.choice(names).and_then(|name| world.keys.named(key.database, &name)).unwrap_or(key)
}

/// Looks at a lock until it is not free, or nobody waits, or another is first in line. None when the connection closes.
fn examine(world: &World, key: &Key, link: &mut Link) -> Option<()> {
    let first = look(key, link)?;
    world.ledger.saw_line(key.number, first.sent, first.line.clone());
    let mut last = Look { line: first.line.clone(), ..first };
    // As long as the same token is first in line, nobody has got the lock: those behind it do not overtake.
    while last.free && !last.line.is_empty() && last.line.first() == first.line.first() {
        let (since, now) = (first.received, last.sent);
        let span = now.saturating_duration_since(since);
        if span > BOUND && span > BOUND + world.weather.between(since, now) {
            accuse(world, key, &last, span);
            return Some(());
        }
        world.rest(BETWEEN_LOOKS);
        last = look(key, link)?;
    }
    Some(())
}

fn accuse(world: &World, key: &Key, last: &Look, span: Duration) {
    let line: Vec<String> = last.line.iter().map(Token::to_string).collect();
    let text = format!("free for {span:?} while these waited: {}", line.join(" "));
    world.accuse(key, "nobody waits for a free lock", &text);
}

/// Asks for state and line together; None when the connection is closed.
fn look(key: &Key, link: &mut Link) -> Option<Look> {
    let sent = link.send(&[format!("LOCK.INFO {}", key.name), format!("LOCK.WAITERS {}", key.name)])?;
    let limit = Duration::from_secs(20);
    let (info, waiters) = (link.receive(limit)?, link.receive(limit)?);
    let received = Instant::now();
    if info == Reply::Closed || waiters == Reply::Closed {
        return None;
    }
    let waiters = if let Reply::List(waiters) = waiters { waiters } else { Vec::new() };
    let free = waiters.first().is_some_and(|first| has_room(&info, first));
    let line = waiters.iter().filter_map(|waiter| Token::read(waiter.get("token").bytes())).collect();
    Some(Look { sent, received, free, line })
}

/// Whether this waiter could have a lock of which LOCK.INFO says this. What is no lock has room for nobody.
fn has_room(info: &Reply, waiter: &Reply) -> bool {
    if info.is_error() || info.get("recovery-ms") != 0 {
        return false;
    }
    let limit = waiter.get("limit").int();
    let fits = || waiter.get("kind") == "shared" && (limit == 0 || info.get("holds").int() < limit);
    info.get("state") == "free" || (info.get("state") == "shared" && fits())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map<const N: usize>(pairs: [(&str, Reply); N]) -> Reply {
        Reply::List(pairs.into_iter().flat_map(|(name, value)| [Reply::text(name), value]).collect())
    }

    fn has_room_for(state: &str, holds: i64, kind: &str, limit: i64) -> bool {
        has_room_in(0, state, holds, kind, limit)
    }

    fn has_room_in(recovery_ms: i64, state: &str, holds: i64, kind: &str, limit: i64) -> bool {
        let recovery = ("recovery-ms", Reply::Int(recovery_ms));
        let info = map([("state", Reply::text(state)), ("holds", Reply::Int(holds)), recovery]);
        has_room(&info, &map([("kind", Reply::text(kind)), ("limit", Reply::Int(limit))]))
    }

    #[test]
    fn a_shared_lock_has_room_for_shares_up_to_their_limit() {
        assert!(has_room_for("shared", 1, "shared", 2));
        assert!(!has_room_for("shared", 2, "shared", 2));
        assert!(has_room_for("shared", 200, "shared", 0));
        assert!(!has_room_for("shared", 1, "mutex", 0));
    }

    #[test]
    fn a_free_lock_has_room_for_anybody_and_one_that_is_held_alone_for_nobody() {
        assert!(has_room_for("free", 0, "mutex", 0));
        assert!(has_room_for("free", 0, "shared", 1));
        assert!(!has_room_for("mutex", 1, "shared", 2));
        assert!(!has_room_in(1, "free", 0, "mutex", 0), "in a recovery period");
        assert!(!has_room(&Reply::Error("WRONGTYPE".to_owned()), &Reply::List(Vec::new())));
    }
}
