//! Waits for messages when the slot of the lock or of the channel leaves: they are lost within a second, and the client asks
//! again at the node that has the lock now. No grant is made to a client that cannot hear of it.

use std::time::{Duration, Instant};

use support::cluster::moved_to;
use support::{Client, LOST, Protocol, Reply, Server, Waiter, Waiting, eventually, field, info_lock, waiters_of};

use super::scene::{MOVES, Scene};

/// How soon a message says that a wait is lost.
const SOON: Duration = Duration::from_secs(1);

/// Attempts at a fair measurement on a busy machine.
const ATTEMPTS: usize = 3;

fn request(key: &str, name: &str) -> String {
    format!("LOCK.ACQUIRE {key} {name} PX 60000 BLOCK 0")
}

#[track_caller]
fn is_lost_soon(waiting: &mut Waiting) {
    assert_eq!(waiting.reply_within(SOON).code(), LOST);
    waiting.has_heard_nothing_else();
}

#[test]
fn slot_of_lock_leaves_and_returns() {
    let scene = Scene::start();
    let (key, channel, there) = (scene.key("door"), scene.neighbour("news"), scene.key_away("news"));
    let (mut home, mut away) = (scene.home().client(), scene.away().client());
    for moves in MOVES {
        assert_eq!(home.run(&format!("LOCK.ACQUIRE {key} alice PX 600000")), 1);
        let mut bob = Waiting::start_on(scene.home(), &channel, &request(&key, "bob"));
        let mut carol = Waiter::start(scene.home(), &request(&key, "carol"));
        if !moves(&scene.leaves()) {
            eprintln!("skipped: this server does not move slots as a whole");
            return;
        }
        is_lost_soon(&mut bob);
        assert_eq!(moved_to(&carol.reply()), scene.away().port());
        eventually("no client waits any more", || info_lock(&mut home, "waiters") == 0);
        assert_eq!(info_lock(&mut home, "granted_after_waiting"), 0);
        // The server drops the keys of a slot that another node has claimed. Then the lock is free there.
        let is_held = field(&mut away, &key, "owner") == "alice";
        let taken = if is_held { Reply::Nil } else { Reply::Int(1) };
        assert_eq!(away.run(&format!("LOCK.ACQUIRE {key} holder PX 600000")), taken);
        // The channel belongs to the node that had the lock before.
        assert_eq!(away.run(&format!("{} NOTIFY {channel}", request(&key, "bob"))).code(), "NOSUBSCRIBER");
        let mut bob = Waiting::start_on(scene.away(), &there, &request(&key, "bob"));
        assert_eq!(away.run(&format!("DEL {key}")), 1);
        assert_eq!(bob.reply(), 1);
        let mut dave = Waiting::start_on(scene.away(), &there, &request(&key, "dave"));
        assert!(moves(&scene.comes_back()));
        is_lost_soon(&mut dave);
        home.run(&format!("DEL {key}"));
    }
}

#[test]
fn slot_of_channel_leaves_and_returns() {
    let scene = Scene::start();
    let (key, channel, other) = (scene.neighbour("door"), scene.key("news"), scene.neighbour("news"));
    let mut home = scene.home().client();
    assert_eq!(home.run(&format!("LOCK.ACQUIRE {key} alice PX 600000")), 1);
    let mut waiting = ["bob", "dave"].map(|name| Waiting::start_on(scene.home(), &channel, &request(&key, name)));
    let mut carol = Waiter::start(scene.home(), &request(&key, "carol"));
    scene.leaves().go_key_by_key();
    // The server has told the subscribers that their subscription has ended.
    waiting.iter_mut().for_each(|waiting| assert_eq!(waiting.reply_within(SOON).code(), LOST));
    assert_eq!(home.run(&format!("{} NOTIFY {channel}", request(&key, "erin"))).code(), "NOSUBSCRIBER");
    // Dave asks again and keeps the turn. Bob does not, and is passed over.
    let mut dave = Waiting::start_on(scene.home(), &other, &request(&key, "dave"));
    assert_eq!(home.run(&format!("LOCK.RELEASE {key} alice")), 0);
    assert_eq!(dave.reply(), 1);
    assert_eq!(home.run(&format!("LOCK.RELEASE {key} dave")), 0);
    assert_eq!(carol.reply(), 1);
    // After the slot has returned, the channel can be used again, and the turn of bob is kept.
    scene.comes_back().go_key_by_key();
    let mut frank = Waiter::start(scene.home(), &request(&key, "frank"));
    let mut bob = Waiting::start_on(scene.home(), &channel, &request(&key, "bob"));
    assert_eq!(home.run(&format!("LOCK.RELEASE {key} carol")), 0);
    assert_eq!(bob.reply(), 1);
    assert_eq!(home.run(&format!("LOCK.RELEASE {key} bob")), 0);
    assert_eq!(frank.reply(), 1);
    assert_eq!(waiters_of(&mut home, &key), 0);
}

/// While the slot migrates, a free lock may be taken at the other node: the client asks there, and waits there.
#[test]
fn lock_freed_during_migration_is_at_other_node() {
    let scene = Scene::start();
    let (key, channel, there) = (scene.key("door"), scene.neighbour("news"), scene.key_away("news"));
    let (mut home, mut away) = (scene.home().client(), scene.away().client());
    let migration = scene.leaves();
    assert_eq!(home.run(&format!("LOCK.ACQUIRE {key} alice PX 600000")), 1);
    migration.open();
    // As long as its key is here, so is the lock.
    let mut bob = Waiting::start_on(scene.home(), &channel, &request(&key, "bob"));
    assert_eq!(home.run(&format!("LOCK.EXTEND {key} alice PX 20")), 20);
    is_lost_soon(&mut bob);
    assert_eq!(home.run(&format!("{} NOTIFY {channel}", request(&key, "bob"))).code(), "ASK");
    away.ok("ASKING");
    assert_eq!(away.run(&request(&key, "bob")), 1, "it is free there");
    let mut listener = subscribe(scene.away(), &there);
    away.ok("ASKING");
    assert_eq!(away.run(&format!("{} NOTIFY {there}", request(&key, "dave"))), Reply::waiting());
    // Longer than the module leaves the slots unchecked.
    std::thread::sleep(Duration::from_millis(600));
    eventually("its key is gone here", || migration.keys_left().is_empty());
    migration.close();
    assert_eq!(away.run(&format!("LOCK.RELEASE {key} bob")), 0);
    assert!(listener.receive_within(SOON).items()[2].string().starts_with("granted "));
}

/// The wait that was lost does not block the other waiters, until its client asks again.
#[test]
fn cancelled_migration_keeps_order() {
    let scene = Scene::start();
    let (key, channel) = (scene.key("door"), scene.neighbour("news"));
    let mut home = scene.home().client();
    let migration = scene.leaves();
    assert_eq!(home.run(&format!("LOCK.ACQUIRE {key} alice PX 600000")), 1);
    let mut bob = Waiting::start_on(scene.home(), &channel, &request(&key, "bob"));
    let mut carol = Waiter::start(scene.home(), &request(&key, "carol"));
    let dave = Waiter::start(scene.home(), &request(&key, "dave"));
    migration.open();
    assert_eq!(home.run(&format!("LOCK.EXTEND {key} alice PX 20")), 20);
    is_lost_soon(&mut bob);
    migration.call_off();
    assert_eq!(carol.reply(), 1);
    let mut bob = Waiting::start_on(scene.home(), &channel, &request(&key, "bob"));
    assert_eq!(home.run(&format!("LOCK.RELEASE {key} carol")), 0);
    assert_eq!(bob.reply(), 1);
    assert!(dave.is_blocked());
}

#[track_caller]
fn subscribe(server: &Server, channel: &str) -> Client {
    let mut listener = server.client();
    listener.send(&["SSUBSCRIBE", channel]);
    assert_eq!(listener.receive().items()[0], "ssubscribe");
    listener
}

/// Sends requests of bob for locks that alice holds, all for messages on one channel.
#[track_caller]
fn wait_for_many(server: &Server, channel: &str, keys: &[String]) -> Client {
    let (mut alice, mut bob) = (server.client(), server.client_speaking(Protocol::Resp3));
    for some in keys.chunks(500) {
        let lines: Vec<String> = some.iter().map(|key| format!("SET {key} alice PX 600000")).collect();
        alice.send_together(&lines);
        assert!(lines.iter().all(|_| alice.receive() == "OK"));
        let lines: Vec<String> = some.iter().map(|key| format!("{} NOTIFY {channel}", request(key, "bob"))).collect();
        bob.send_together(&lines);
        assert!(lines.iter().all(|_| bob.receive() == Reply::waiting()));
    }
    bob
}

#[test]
fn waits_in_moved_slot_are_lost_within_a_second() {
    const STAY: usize = 6000;
    const LEAVE: usize = 2000;
    let scene = Scene::start();
    let channel = scene.neighbour("news");
    let mut listener = subscribe(scene.home(), &channel);
    // Those that stay have come first, and are in many slots.
    let stay: Vec<String> = scene.neighbours("stays").take(STAY).collect();
    let leave: Vec<String> = (0..LEAVE).map(|number| scene.key(&format!("leaves{number}"))).collect();
    let _bob = wait_for_many(scene.home(), &channel, &stay);
    let mut late = Vec::new();
    for _ in 0..ATTEMPTS {
        let _bob = wait_for_many(scene.home(), &channel, &leave);
        scene.leaves().seize();
        let since = Instant::now();
        for _ in 0..LEAVE {
            let message = listener.receive();
            assert!(message.items()[2].string().starts_with("lost 0 0 bob "), "{message:?}");
        }
        late.push(since.elapsed());
        assert_eq!(info_lock(&mut scene.home().client(), "waiters"), i64::try_from(STAY).unwrap());
        if late.last().is_some_and(|late| *late < SOON) {
            return;
        }
        scene.comes_back().seize();
    }
    panic!("lost after {late:?}");
}

#[test]
fn waits_cost_no_commands() {
    let scene = Scene::start();
    let (channel, keys) = (scene.neighbour("news"), scene.neighbours("stays").take(2000));
    let _listener = subscribe(scene.home(), &channel);
    let _bob = wait_for_many(scene.home(), &channel, &keys.collect::<Vec<_>>());
    let mut control = scene.home().client();
    control.ok("CONFIG RESETSTAT");
    std::thread::sleep(Duration::from_secs(1));
    let processed = control.info("stats", "total_commands_processed").expect("the field");
    assert!(processed.parse::<u32>().expect("a number") < 50, "{processed} commands in a second");
}
