//! External commands: those of other clients on rough keys, keys that end by the thousand, and FLUSHALL, which removes
//! all keys. Some writes depend on the state of a lock: the release of client libraries, which compares the token, the
//! owner or a share that is removed manually, and RESTORE of the state of another lock.

use std::sync::Arc;
use std::time::Duration;

use support::{Reply, now_ms};

use crate::keys::{DATABASES, FLUSHED, Key};
use crate::link::{Link, PATIENCE};
use crate::run::Run;

/// How redis-py and Redlock release a lock.
const UNLOCK: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

type Links = [Option<Link>; DATABASES as usize];

pub fn send_external_commands(run: &Run, mut random: fastrand::Rng) {
    let mut links = Links::default();
    while run.goes_on() {
        match random.u16(..1000) {
            0..8 => flush_all(run, &mut random),
            // In a cluster one database has all keys.
            8..18 if !run.in_cluster() => {
                // On a connection of its own: no other command can have selected another database there.
                let database = FLUSHED[random.usize(..FLUSHED.len())];
                let swap = format!("SWAPDB {} {}", FLUSHED[0], FLUSHED[1]);
                let (kind, line) = if random.bool() { ("FLUSHDB", "FLUSHDB") } else { ("SWAPDB", &*swap) };
                count(run, kind, run.connect(database, false).map(|mut link| link.run(line)));
            }
            18..38 => {
                // Keys that end soon and that no client asks for again.
                let line = |_| format!("SET v{} x PX {}", random.u32(..5000), random.u32(1..400));
                let lines: Vec<String> = (0..1000).map(line).collect();
                send(&mut links, run, random.u32(..DATABASES), &lines);
            }
            _ => send_to_one(run, &mut links, &mut random),
        }
        run.counters.count("external commands");
        run.rest(Duration::from_millis(random.u64(..25)));
    }
}

/// Counts a write that has changed something; `None` if the connection was closed.
fn count(run: &Run, kind: &'static str, reply: Option<Reply>) -> Option<()> {
    let reply = reply.filter(|reply| *reply != Reply::Closed)?;
    if reply == 1 || reply == "OK" {
        run.counters.count(kind);
    }
    Some(())
}

fn flush_all(run: &Run, random: &mut fastrand::Rng) {
    if Arc::strong_count(&run.no_flushes) > 1 {
        return;
    }
    let Some(mut link) = run.connect(random.u32(..DATABASES), false) else { return };
    run.fault("FLUSHALL");
    run.evidence.flushes.begin(());
    let reply = link.run("FLUSHALL");
    run.evidence.flushes.end_all();
    run.fault(&format!("the reply to FLUSHALL is {reply:?}"));
    count(run, "FLUSHALL", Some(reply));
}

fn send_to_one(run: &Run, links: &mut Links, random: &mut fastrand::Rng) {
    let (mut key, other) = (run.keys.rough(random), run.keys.rough(random));
    if random.bool() {
        let names = links[key.database as usize].as_mut().map(Link::contended).unwrap_or_default();
        let keys = names.iter().filter_map(|name| run.keys.named(key.database, name));
        key = random.choice(keys.filter(|key| !key.is_strict).collect::<Vec<_>>()).unwrap_or(key);
    }
    let restores = random.u8(..4) == 0;
    if random.u8(..5) == 0 {
        let Some(mut link) = take_link(links, run, key.database) else { return };
        let from = if restores { format!("DUMP {}", other.name) } else { format!("TYPE {}", key.name) };
        let done = change(run, &mut link, &key.name, &from, random);
        links[key.database as usize] = done.map(|()| link);
        return;
    }
    let line = line(key, other, random);
    if run.moves_keys || !line.starts_with("MOVE") {
        send(links, run, key.database, &[line]);
    }
}

/// The commands; K is the key, L another one, D a database, and the last word of some of them a time.
const COMMANDS: &[&str] = &[
    "DEL K",
    "UNLINK K",
    "GETDEL K",
    "PEXPIRE K MS",
    "EXPIRE K -1",
    "PEXPIREAT K 1",
    "PERSIST K",
    "SET K foreign PX MS",
    "SET K foreign NX PX MS",
    "SET K foreign",
    "RPUSH K foreign",
    "HSET K foreign value",
    "RENAME K L",
    "COPY K L REPLACE",
    "MOVE K D",
    "GETEX K PX MS",
    "ZPOPMIN K",
    "ZPOPMAX K",
    "ZREMRANGEBYSCORE K -inf SOON",
    "ZREMRANGEBYRANK K 0 0",
    "ZADD K SOON foreign",
    "ZREM K foreign",
];

fn line(key: &Key, other: &Key, random: &mut fastrand::Rng) -> String {
    let ms = random.i64(1..60);
    let database = FLUSHED[random.usize(..FLUSHED.len())];
    let word = |word: &str| match word {
        "K" => key.name.clone(),
        "L" => other.name.clone(),
        "D" => database.to_string(),
        "MS" => ms.to_string(),
        "SOON" => (now_ms() + ms).to_string(),
        word => word.to_owned(),
    };
    let command = COMMANDS[random.usize(..COMMANDS.len())];
    command.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Sends lines in one write and reads the replies, whatever they are.
fn send(links: &mut Links, run: &Run, database: u32, lines: &[String]) {
    let Some(mut link) = take_link(links, run, database) else { return };
    let is_open = link.send(lines).is_some();
    if is_open && lines.iter().all(|_| link.receive(PATIENCE).is_some_and(|reply| reply != Reply::Closed)) {
        links[database as usize] = Some(link);
    }
}

fn take_link(links: &mut Links, run: &Run, database: u32) -> Option<Link> {
    run.current(links[database as usize].take()).or_else(|| run.connect(database, false))
}

/// Takes a lock from a holder, in the way that fits its layout, or puts the state of another lock in its place, by the
/// reply to `from`. `None` if the connection is closed.
fn change(run: &Run, link: &mut Link, name: &str, from: &str, random: &mut fastrand::Rng) -> Option<()> {
    let ms = random.u32(1..60).to_string();
    let (kind, read, write): (_, _, &[&[u8]]) = match link.run(from) {
        Reply::Text(dump) => {
            let reply = link.call(&[b"RESTORE", name.as_bytes(), ms.as_bytes(), &dump, b"REPLACE"]);
            return count(run, "RESTORE", Some(reply));
        }
        reply if reply == "string" => {
            ("EVAL of the unlock script of a library", format!("GET {name}"), &[b"EVAL", UNLOCK.as_bytes(), b"1"])
        }
        reply if reply == "hash" => ("HDEL", format!("HKEYS {name}"), &[b"HDEL"]),
        reply if reply == "zset" => ("ZREM of a share", format!("ZRANGE {name} 0 -1"), &[b"ZREM"]),
        reply => return (reply != Reply::Closed).then_some(()),
    };
    let token = match link.run(&read) {
        Reply::List(tokens) => random.choice(tokens)?,
        reply => reply,
    };
    match token {
        Reply::Text(token) => count(run, kind, Some(link.call(&[write, &[name.as_bytes(), &token]].concat()))),
        reply => (reply != Reply::Closed).then_some(()),
    }
}
