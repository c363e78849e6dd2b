//! Commands of other clients on rough keys, keys of others that end by the thousand, and FLUSHALL, which meets all keys.

use std::time::Duration;

use support::{Reply, now_ms};

use super::taking::{restore, take_from_holder};
use crate::keys::{DATABASES, Key, WILD};
use crate::link::Link;
use crate::world::World;

const LIMIT: Duration = Duration::from_secs(20);

/// Sends such commands until the run is over.
pub fn meddle(world: &World, mut random: fastrand::Rng) {
    let mut links: [Option<Link>; 4] = Default::default();
    while world.goes_on() {
        match random.u16(..1000) {
            0..8 => flush_all(world, &mut random),
            // In a cluster one database has all keys.
            8..13 if !world.in_cluster() => flush(world, &mut random),
            13..18 if !world.in_cluster() => swap(world),
            18..38 => {
                let database = random.u32(..4);
                run_on(&mut links, world, database, &volatile(&mut random));
            }
            _ => meddle_with_one(world, &mut links, &mut random),
        }
        world.figures.fault("foreign commands");
        world.rest(Duration::from_millis(random.u64(..25)));
    }
}

/// On a connection of its own that is in a wild database from the beginning, so that nothing can lead it elsewhere.
fn flush(world: &World, random: &mut fastrand::Rng) {
    let database = WILD[random.usize(..WILD.len())];
    count(world, "FLUSHDB", world.connect(database, false).map(|mut link| link.run("FLUSHDB")));
}

/// Exchanges two wild databases.
fn swap(world: &World) {
    let line = format!("SWAPDB {} {}", WILD[0], WILD[1]);
    count(world, "SWAPDB", world.connect(0, false).map(|mut link| link.run(&line)));
}

/// Counts what was done.
fn count(world: &World, kind: &'static str, reply: Option<Reply>) {
    if reply.is_some_and(|reply| reply == "OK") {
        world.figures.fault(kind);
    }
}

/// Takes every lock from whoever holds it.
fn flush_all(world: &World, random: &mut fastrand::Rng) {
    if world.flushes.are_put_off() {
        return;
    }
    let Some(mut link) = world.connect(random.u32(..DATABASES), false) else { return };
    world.note_fault("FLUSHALL");
    world.flushes.begin();
    let sent = link.send(&["FLUSHALL"]);
    let reply = if sent.is_some() { link.receive(LIMIT) } else { Some(Reply::Closed) };
    // In a cluster it has met the keys of one server.
    if let Some(reply) = reply {
        world.flushes.end(reply == "OK" && !world.in_cluster());
        world.note_fault(&format!("FLUSHALL is answered {reply:?}"));
        count(world, "FLUSHALL", Some(reply));
    }
}

/// Keys that nobody looks at again and that end soon.
fn volatile(random: &mut fastrand::Rng) -> Vec<String> {
    (0..1000).map(|_| format!("SET v{} x PX {}", random.u32(..5000), random.u32(1..400))).collect()
}

fn meddle_with_one(world: &World, links: &mut [Option<Link>; 4], random: &mut fastrand::Rng) {
    let mut key = world.keys.rough(random);
    let other = world.keys.rough(random);
    if random.bool() {
        key = contended(world, links, key, random);
    }
    if random.u8(..5) == 0 {
        return look_and_write(world, links, key, other, random);
    }
    let line = line(key, other, random);
    if world.moves_keys || !line.starts_with("MOVE") {
        run_on(links, world, key.database, &[line]);
    }
}

fn look_and_write(world: &World, links: &mut [Option<Link>; 4], key: &Key, other: &Key, random: &mut fastrand::Rng) {
    let Some(mut link) = take_link(links, world, key.database) else { return };
    let done = if random.u8(..4) == 0 {
        restore(world, &mut link, &key.name, &other.name, random)
    } else {
        take_from_holder(world, &mut link, &key.name, random)
    };
    links[key.database as usize] = done.map(|()| link);
}

/// One of the rough keys of this database that are waited for most, or this one.
fn contended<'w>(world: &'w World, links: &mut [Option<Link>; 4], key: &'w Key, random: &mut fastrand::Rng) -> &'w Key {
    let names = links[key.database as usize].as_mut().map(Link::contended).unwrap_or_default();
    let keys = names.iter().filter_map(|name| world.keys.named(key.database, name));
    random.choice(keys.filter(|key| !key.is_strict()).collect::<Vec<_>>()).unwrap_or(key)
}

fn line(key: &Key, other: &Key, random: &mut fastrand::Rng) -> String {
    let (name, ms) = (&key.name, random.u32(1..60));
    let to = &other.name;
    match random.u8(..28) {
        0..3 => format!("DEL {name}"),
        3 => format!("UNLINK {name}"),
        4 => format!("GETDEL {name}"),
        5 | 6 => format!("PEXPIRE {name} {ms}"),
        7 => format!("EXPIRE {name} -1"),
        8 => format!("PEXPIREAT {name} 1"),
        9 => format!("PERSIST {name}"),
        10 => format!("SET {name} foreign PX {ms}"),
        11 => format!("SET {name} foreign NX PX {ms}"),
        12 => format!("SET {name} foreign"),
        13 => format!("RPUSH {name} foreign"),
        14 => format!("HSET {name} foreign value"),
        15 | 16 => format!("RENAME {name} {to}"),
        17 => format!("COPY {name} {to} REPLACE"),
        18 => format!("MOVE {name} {}", WILD[random.usize(..WILD.len())]),
        19 => format!("GETEX {name} PX {ms}"),
        20 | 21 => format!("ZPOPMIN {name}"),
        22 => format!("ZPOPMAX {name}"),
        23 | 24 => format!("ZREMRANGEBYSCORE {name} -inf {}", now_ms() + i64::from(ms)),
        25 => format!("ZREMRANGEBYRANK {name} 0 0"),
        26 => format!("ZADD {name} {} foreign", now_ms() + i64::from(ms)),
        _ => format!("ZREM {name} foreign"),
    }
}

/// Sends lines in one write and reads what they are answered, whatever it is.
fn run_on(links: &mut [Option<Link>; 4], world: &World, database: u32, lines: &[String]) {
    let Some(mut link) = take_link(links, world, database) else { return };
    if link.send(lines).is_none() {
        return;
    }
    for _ in lines {
        if !matches!(link.receive(LIMIT), Some(reply) if reply != Reply::Closed) {
            return;
        }
    }
    links[database as usize] = Some(link);
}

/// The connection to a database, or a new one.
fn take_link(links: &mut [Option<Link>; 4], world: &World, database: u32) -> Option<Link> {
    world.still(links[database as usize].take()).or_else(|| world.connect(database, false))
}
