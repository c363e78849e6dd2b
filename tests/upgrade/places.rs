//! Master and replica of two versions change places: what is held, what belongs to connections, and who waits.

use support::parallel::for_each;
use support::{Reply, Server, Waiter, waiters_of};

use super::versions::{Version, WAYS, change_places, is_told_off, still_holds, take_locks};

const BOB: &str = "LOCK.ACQUIRE door bob PX 600000 BLOCK 0";
const CAROL: &str = "LOCK.REENTER door carol PX 600000 BLOCK 0";

/// A master of one version with a replica of the other.
#[track_caller]
fn pair((from, to): (Version, Version)) -> (Server, Server) {
    let master = from.setup().start();
    let replica = to.replica_of(&master);
    assert_eq!((Version::of(&master), Version::of(&replica)), (from, to));
    (master, replica)
}

#[test]
fn what_is_held_is_held_at_the_new_master() {
    for_each(&WAYS, |&way| {
        let (old, new) = pair(way);
        let lease_end = take_locks(&mut old.client());
        change_places(&old, &new);
        still_holds(&mut new.client(), lease_end);
        assert_eq!(new.client().run("LOCK.ACQUIRE door bob"), Reply::Nil);
        assert_eq!(old.client().run("LOCK.RELEASE door alice").code(), "READONLY");
        assert_eq!(new.client().run("LOCK.RELEASE door alice"), 0);
    });
}

#[test]
fn who_waits_is_told_and_asks_the_new_master_in_one_place() {
    for_each(&WAYS, |&way| {
        let (old, new) = pair(way);
        let mut alice = old.client();
        take_locks(&mut alice);
        let mut waiting = [BOB, CAROL].map(|line| Waiter::start(&old, line));
        change_places(&old, &new);
        waiting.iter_mut().for_each(|waiter| is_told_off(&waiter.reply()));

        // Bob asks once more because he had no answer, as clients do.
        let mut alice = new.client();
        let mut waiting = [BOB, CAROL, BOB].map(|line| Waiter::start(&new, line));
        assert_eq!(waiters_of(&mut alice, "door"), 3);
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
        let [bob, carol, again] = &mut waiting;
        assert_eq!((bob.reply(), again.reply()), (Reply::Int(1), Reply::Int(1)), "one grant for both");
        assert!(carol.is_blocked());
        assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
        assert_eq!(carol.reply(), 1, "bob is in line no more");
        assert_eq!(alice.run("LOCK.RELEASE door carol"), 0);
        assert_eq!(alice.run("EXISTS door"), 0);
    });
}

#[test]
fn a_session_becomes_a_lease_until_its_holder_asks_again() {
    for_each(&WAYS, |&way| {
        let (old, new) = pair(way);
        let [mut kept, mut lost] = [(); 2].map(|()| old.client());
        assert_eq!(kept.run("LOCK.ACQUIRE desk kept PX 8000 SESSION"), 1);
        assert_eq!(lost.run("LOCK.ACQUIRE shelf lost PX 8000 SESSION"), 1);
        change_places(&old, &new);

        let mut kept = new.client();
        assert_eq!(kept.run("LOCK.INFO desk").get("owner"), "kept", "a lease is left of it");
        assert_eq!(kept.run("LOCK.ACQUIRE desk kept PX 8000 SESSION"), 1);
        let mut next = new.client();
        assert_eq!(next.run("LOCK.ACQUIRE shelf next PX 600000 BLOCK 9000"), 1, "when the lease has ended");
        assert_eq!(new.client().run("LOCK.EXTEND shelf lost PX 8000").code(), "NOTOWNER");
        // What was set before the change has ended by now, as on the shelf.
        assert_eq!(next.run("LOCK.INFO desk").get("owner"), "kept");
        let mut waiter = Waiter::start(&new, "LOCK.ACQUIRE desk waiter PX 1000 BLOCK 0");
        drop(kept);
        assert_eq!(waiter.reply(), 1, "the session ends with its connection");
    });
}
