//! Who waits for a message when the slot of the lock or of the channel leaves: told within a second, and asks again where
//! the lock belongs now. No grant is made to nobody.

use std::thread;
use std::time::{Duration, Instant};

use support::cluster::moved_to;
use support::migration::Migration;
use support::{Client, LOST, Protocol, Reply, Server, Waiter, Waiting, Way, eventually, field, info_lock, waiters_of};

use super::scene::Scene;

/// How soon those whose waits are lost are told so.
const SOON: Duration = Duration::from_secs(1);

/// Attempts at a fair measurement on a busy machine.
const ATTEMPTS: usize = 3;

fn ask(key: &str, name: &str) -> String {
    format!("LOCK.ACQUIRE {key} {name} PX 60000 BLOCK 0")
}

/// The ways in which a slot moves. `false` where the server cannot.
pub(super) const MOVES: [fn(&Migration<'_>) -> bool; 3] = [
    |migration| {
        migration.go_key_by_key();
        true
    },
    |migration| {
        migration.seize();
        true
    },
    |migration| migration.run_atomically(),
];

#[track_caller]
fn is_lost_soon(waiting: &mut Waiting) {
    assert_eq!(waiting.reply_within(SOON).code(), LOST);
}

#[test]
fn slot_of_lock_leaves_and_returns() {
    let scene = Scene::start();
    let (key, channel, there) = (scene.key("door"), scene.neighbour("news"), scene.key_away("news"));
    let (mut home, mut away) = (scene.home().client(), scene.away().client());
    for moves in MOVES {
        assert_eq!(home.run(&format!("LOCK.ACQUIRE {key} alice PX 600000")), 1);
        let mut bob = Waiting::start_on(scene.home(), &channel, &ask(&key, "bob"));
        let mut carol = Waiter::start(scene.home(), &ask(&key, "carol"));
        if !moves(&scene.leaves()) {
            eprintln!("skipped: this server does not move slots as a whole");
            return;
        }
        is_lost_soon(&mut bob);
        bob.has_heard_nothing_else();
        assert_eq!(moved_to(&carol.reply()), scene.away().port());
        eventually("nobody waits any more", || info_lock(&mut home, "waiters") == 0);
        assert_eq!(info_lock(&mut home, "granted_after_waiting"), 0);
        // Where the lock belongs now the channel of before is another node's.
        assert_eq!(away.run(&format!("LOCK.ACQUIRE {key} holder PX 600000")), held_by_alice(&mut away, &key));
        assert_eq!(away.run(&format!("{} NOTIFY {channel}", ask(&key, "bob"))).code(), "NOSUBSCRIBER");
        let mut bob = Waiting::start_on(scene.away(), &there, &ask(&key, "bob"));
        assert_eq!(away.run(&format!("DEL {key}")), 1);
        assert_eq!(bob.reply(), 1);
        let mut dave = Waiting::start_on(scene.away(), &there, &ask(&key, "dave"));
        assert!(moves(&scene.comes_back()));
        is_lost_soon(&mut dave);
        dave.has_heard_nothing_else();
        home.run(&format!("DEL {key}"));
    }
}

/// The server drops the keys of a slot that another node has claimed. Then the lock is free there.
#[track_caller]
fn held_by_alice(client: &mut Client, key: &str) -> Reply {
    match field(client, key, "owner") {
        owner if owner == "alice" => Reply::Nil,
        _ => Reply::Int(1),
    }
}

#[test]
fn slot_of_channel_leaves_and_returns() {
    let scene = Scene::start();
    let (key, channel, other) = (scene.neighbour("door"), scene.key("news"), scene.neighbour("news"));
    let mut home = scene.home().client();
    for moves in MOVES {
        assert_eq!(home.run(&format!("LOCK.ACQUIRE {key} alice PX 600000")), 1);
        let [mut bob, mut dave] =
            ["bob", "dave"].map(|name| Waiting::start_on(scene.home(), &channel, &ask(&key, name)));
        let mut carol = Waiter::start(scene.home(), &ask(&key, "carol"));
        if !moves(&scene.leaves()) {
            eprintln!("skipped: this server does not move slots as a whole");
            return;
        }
        // The server has told the subscribers that they are none any more.
        is_lost_soon(&mut bob);
        is_lost_soon(&mut dave);
        assert_eq!(home.run(&format!("{} NOTIFY {channel}", ask(&key, "erin"))).code(), "NOSUBSCRIBER");
        // Who asks again keeps the place; who does not is passed over.
        let mut dave = Waiting::start_on(scene.home(), &other, &ask(&key, "dave"));
        assert_eq!(home.run(&format!("LOCK.RELEASE {key} alice")), 0);
        assert_eq!(dave.reply(), 1);
        assert_eq!(home.run(&format!("LOCK.RELEASE {key} dave")), 0);
        assert_eq!(carol.reply(), 1);
        dave.has_heard_nothing_else();
        assert!(moves(&scene.comes_back()));
        // Back again the channel is as good as before, and the place of bob is kept.
        let mut frank = Waiter::start(scene.home(), &ask(&key, "frank"));
        let mut bob = Waiting::start_on(scene.home(), &channel, &ask(&key, "bob"));
        assert_eq!(home.run(&format!("LOCK.RELEASE {key} carol")), 0);
        assert_eq!(bob.reply(), 1);
        assert_eq!(home.run(&format!("LOCK.RELEASE {key} bob")), 0);
        assert_eq!(frank.reply(), 1);
        assert_eq!(waiters_of(&mut home, &key), 0);
        assert_eq!(home.run(&format!("DEL {key}")), 1);
    }
}

/// The slot is on its way, and the lock may be taken at the other node: that is where to ask, and to ask again.
#[test]
fn lock_freed_during_migration_is_at_other_node() {
    let scene = Scene::start();
    let (key, channel, other) = (scene.key("door"), scene.neighbour("news"), scene.neighbour("other"));
    let mut home = scene.home().client();
    let migration = scene.leaves();
    assert_eq!(home.run(&format!("LOCK.ACQUIRE {key} alice PX 600000")), 1);
    let mut bob = Waiting::start_on(scene.home(), &channel, &ask(&key, "bob"));
    migration.open();
    // As long as its key is here, so is the lock.
    let mut carol = Waiting::start_on(scene.home(), &other, &ask(&key, "carol"));
    assert_eq!(home.run(&format!("LOCK.RELEASE {key} alice")), 0);
    assert_eq!(bob.reply(), 1);
    assert_eq!(home.run(&format!("LOCK.EXTEND {key} bob PX 20")), 20);
    is_lost_soon(&mut carol);
    carol.has_heard_nothing_else();
    assert_eq!(home.run(&format!("{} NOTIFY {other}", ask(&key, "carol"))).code(), "ASK");
    let mut away = scene.away().client();
    away.ok("ASKING");
    assert_eq!(away.run(&format!("{} NOTIFY nobody", ask(&key, "carol"))), 1, "it is free there");
    // Whoever was sent there waits there, also until the slot has arrived.
    let there = scene.key_away("news");
    let mut listener = subscribe(scene.away(), &there);
    away.ok("ASKING");
    assert_eq!(away.run(&format!("{} NOTIFY {there}", ask(&key, "dave"))), Reply::waiting());
    // Longer than the server is left unasked.
    thread::sleep(Duration::from_millis(600));
    eventually("its key is gone here", || migration.keys_left().is_empty());
    migration.close();
    assert_eq!(away.run(&format!("LOCK.RELEASE {key} carol")), 0);
    assert!(listener.receive_within(SOON).items()[2].string().starts_with("granted "));
}

#[test]
fn repeat_after_cancelled_migration_waits() {
    let scene = Scene::start();
    let key = scene.key("door");
    let mut home = scene.home().client();
    let migration = scene.leaves();
    assert_eq!(home.run(&format!("LOCK.ACQUIRE {key} alice PX 600000")), 1);
    let mut bob = Way::Notified.start(scene.home(), &ask(&key, "bob"));
    migration.open();
    assert_eq!(home.run(&format!("LOCK.EXTEND {key} alice PX 20")), 20);
    is_lost_soon(&mut bob);
    migration.call_off();
    assert_eq!(home.run(&format!("LOCK.ACQUIRE {key} alice PX 600000")), 1);
    let mut bob = Way::OnOneConnection.start(scene.home(), &ask(&key, "bob"));
    assert_eq!(home.run(&format!("LOCK.RELEASE {key} alice")), 0);
    assert_eq!(bob.reply(), 1);
}

/// Sends requests of bob's for locks that alice holds, all for messages on one channel.
#[track_caller]
fn wait_for_many(server: &Server, channel: &str, keys: &[String]) -> Client {
    let (mut alice, mut bob) = (server.client(), server.client_speaking(Protocol::Resp3));
    for some in keys.chunks(500) {
        let lines: Vec<String> = some.iter().map(|key| format!("SET {key} alice PX 600000")).collect();
        alice.send_together(&lines);
        assert!(lines.iter().all(|_| alice.receive() == "OK"));
        let lines: Vec<String> = some.iter().map(|key| format!("{} NOTIFY {channel}", ask(key, "bob"))).collect();
        bob.send_together(&lines);
        assert!(lines.iter().all(|_| bob.receive() == Reply::waiting()));
    }
    bob
}

#[track_caller]
fn subscribe(server: &Server, channel: &str) -> Client {
    let mut listener = server.client();
    listener.send(&["SSUBSCRIBE", channel]);
    assert_eq!(listener.receive().items()[0], "ssubscribe");
    listener
}

/// How long it takes from now until so many waits are lost.
#[track_caller]
fn all_lost(listener: &mut Client, count: usize) -> Duration {
    let since = Instant::now();
    for _ in 0..count {
        let message = listener.receive();
        assert!(message.items()[2].string().starts_with("lost 0 0 bob "), "{message:?}");
    }
    since.elapsed()
}

#[test]
fn cancelled_migration_keeps_order() {
    let scene = Scene::start();
    let (key, channel) = (scene.key("door"), scene.neighbour("news"));
    let mut home = scene.home().client();
    let migration = scene.leaves();
    assert_eq!(home.run(&format!("LOCK.ACQUIRE {key} alice PX 600000")), 1);
    let mut bob = Waiting::start_on(scene.home(), &channel, &ask(&key, "bob"));
    let mut carol = Waiter::start(scene.home(), &ask(&key, "carol"));
    let dave = Waiter::start(scene.home(), &ask(&key, "dave"));
    migration.open();
    assert_eq!(home.run(&format!("LOCK.EXTEND {key} alice PX 20")), 20);
    is_lost_soon(&mut bob);
    migration.call_off();
    // Those whom the server has let wait on are no longer behind bob until he asks again.
    assert_eq!(carol.reply(), 1);
    let mut bob = Way::OnOneConnection.start(scene.home(), &ask(&key, "bob"));
    assert_eq!(home.run(&format!("LOCK.RELEASE {key} carol")), 0);
    assert_eq!(bob.reply(), 1);
    assert!(dave.is_blocked());
}

#[test]
fn waits_cost_no_commands() {
    const KEYS: usize = 2000;
    let scene = Scene::start();
    let channel = scene.neighbour("news");
    let _listener = subscribe(scene.home(), &channel);
    let _bob = wait_for_many(scene.home(), &channel, &scene.keys_of_home(KEYS));
    let mut control = scene.home().client();
    control.ok("CONFIG RESETSTAT");
    thread::sleep(Duration::from_secs(1));
    let processed = control.info("stats", "total_commands_processed").expect("the field");
    assert!(processed.parse::<u32>().expect("a number") < 50, "{processed} commands in a second");
}

#[test]
fn waits_in_moved_slot_are_lost_within_a_second() {
    const STAY: usize = 6000;
    const LEAVE: usize = 2000;
    let scene = Scene::start();
    let channel = scene.neighbour("news");
    let mut listener = subscribe(scene.home(), &channel);
    // Those that stay have come first, and are in as many slots as may be.
    let stay = scene.keys_of_home(STAY);
    let leave: Vec<String> = (0..LEAVE).map(|number| scene.key(&format!("leaves{number}"))).collect();
    let _bob = wait_for_many(scene.home(), &channel, &stay);
    let mut late = Vec::new();
    for _ in 0..ATTEMPTS {
        let _bob = wait_for_many(scene.home(), &channel, &leave);
        if !scene.leaves().run_atomically() {
            scene.leaves().seize();
        }
        late.push(all_lost(&mut listener, LEAVE));
        assert_eq!(info_lock(&mut scene.home().client(), "waiters"), i64::try_from(STAY).unwrap());
        if late.last().is_some_and(|late| *late < SOON) {
            return;
        }
        scene.comes_back().seize();
    }
    panic!("lost after {late:?}");
}
