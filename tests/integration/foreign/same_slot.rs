//! In a cluster: those are woken whose package could name the lock and what wakes them in one script, because both are in one
//! slot.

use support::{Reply, Setup, Waiter, one_node};

use super::{has_heard_nothing, hears_unlock, subscribe};
use crate::cluster::Scene;

const ON: &str = "lock.wake-foreign yes";

#[test]
fn a_signal_is_left_in_the_slot_of_the_lock_and_nowhere_else() {
    let server = one_node::with_every_slot(&Setup::new().config(ON));
    let mut alice = server.client();
    let mut theirs = Waiter::start(&server, "BLPOP lock-signal:{door} 0");
    for key in ["lock:{door}", "lock:door"] {
        assert_eq!(alice.run(&format!("LOCK.ACQUIRE {key} alice PX 600000")), 1);
        assert_eq!(alice.run(&format!("LOCK.RELEASE {key} alice")), 0);
    }
    assert_eq!(theirs.reply(), Reply::list([Reply::text("lock-signal:{door}"), Reply::text("1")]));
    assert_eq!(alice.run("DBSIZE"), 0, "the other is in another slot");
}

#[test]
fn redisson_is_told_on_the_shard_channel_and_on_the_plain_one() {
    let scene = Scene::configured(ON);
    let key = scene.key("door");
    let channel = format!("redisson_lock__channel:{key}");
    let mut shard = [scene.home(), scene.replica()].map(|server| subscribe(server, "SSUBSCRIBE", &channel));
    let mut plain =
        [scene.home(), scene.away(), scene.replica()].map(|server| subscribe(server, "SUBSCRIBE", &channel));
    let mut alice = scene.home().client();
    assert_eq!(alice.run(&format!("LOCK.REENTER {key} alice PX 600000")), 1);
    assert_eq!(alice.run(&format!("LOCK.RELEASE {key} alice")), 0);
    shard.iter_mut().chain(&mut plain).for_each(hears_unlock);
    shard.iter_mut().chain(&mut plain).for_each(has_heard_nothing);
}

#[test]
fn a_channel_that_is_in_another_slot_than_its_lock_is_left_alone() {
    let server = one_node::with_every_slot(&Setup::new().config(ON));
    let mut theirs = subscribe(&server, "PSUBSCRIBE", "*");
    let mut alice = server.client();
    for key in ["a}b", "a{b"] {
        assert_eq!(alice.run(&format!("LOCK.REENTER {key} alice")), 1);
        assert_eq!(alice.run(&format!("LOCK.RELEASE {key} alice")), 0);
    }
    has_heard_nothing(&mut theirs);
}
