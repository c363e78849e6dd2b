//! Master and replica of two versions change places.

use support::listener::Listener;
use support::parallel::for_each;
use support::replicas::{in_step, in_time, is_master};
use support::{Reply, Server, Waiter, eventually, waiters_of};

use super::versions::{Version, WAYS, is_ended_by_demotion, still_holds, take_locks};

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

/// A planned failover without Sentinel. The old master follows the new one afterwards.
#[track_caller]
fn change_places(master: &Server, replica: &Server) {
    let failover = format!("FAILOVER TO 127.0.0.1 {}", replica.port());
    let mut client = master.client();
    // The master has to see that its replica is online.
    eventually("the failover begins", || client.run(&failover) == "OK");
    in_time("the replica is promoted", || is_master(replica));
    in_step(master);
}

#[test]
fn locks_and_waiters_outlast_failover() {
    for_each(&WAYS, |&way| {
        let (old, new) = pair(way);
        let lease_end = take_locks(&mut old.client());
        let mut waiting = [BOB, CAROL].map(|line| Waiter::start(&old, line));
        change_places(&old, &new);
        waiting.iter_mut().for_each(|waiter| is_ended_by_demotion(&waiter.reply()));
        let mut alice = new.client();
        still_holds(&mut alice, lease_end);
        assert_eq!(alice.run("LOCK.ACQUIRE door bob"), Reply::Nil);
        assert_eq!(old.client().run("LOCK.RELEASE door alice").code(), "READONLY");

        // Bob sends his request twice, as a client does without a reply.
        let [mut bob, mut carol, mut again] = [BOB, CAROL, BOB].map(|line| Waiter::start(&new, line));
        assert_eq!(waiters_of(&mut alice, "door"), 3);
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
        assert_eq!((bob.reply(), again.reply()), (Reply::Int(1), Reply::Int(1)), "one grant for both");
        assert!(carol.is_blocked());
        assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
        assert_eq!(carol.reply(), 1, "bob's repeat waits no more");
        assert_eq!(alice.run("LOCK.RELEASE door carol"), 0);
    });
}

#[test]
fn session_is_lease_until_its_holder_repeats() {
    for_each(&WAYS, |&way| {
        let (old, new) = pair(way);
        let [mut kept, mut lost] = [(); 2].map(|()| old.client());
        assert_eq!(kept.run("LOCK.ACQUIRE desk kept PX 8000 SESSION"), 1);
        assert_eq!(lost.run("LOCK.ACQUIRE shelf lost PX 8000 SESSION"), 1);
        change_places(&old, &new);

        let mut kept = new.client();
        assert_eq!(kept.run("LOCK.INFO desk").get("owner"), "kept");
        assert_eq!(kept.run("LOCK.ACQUIRE desk kept PX 8000 SESSION"), 1);
        let mut next = new.client();
        assert_eq!(next.run("LOCK.ACQUIRE shelf next PX 600000 BLOCK 9000"), 1, "the lease has ended");
        assert_eq!(next.run("LOCK.EXTEND shelf lost PX 8000").code(), "NOTOWNER");
        // Without renewals, this lease would have ended by now.
        assert_eq!(next.run("LOCK.INFO desk").get("owner"), "kept");
        let mut waiter = Waiter::start(&new, "LOCK.ACQUIRE desk waiter PX 1000 BLOCK 0");
        drop(kept);
        assert_eq!(waiter.reply(), 1, "the session ends with its connection");
    });
}

/// Only the new version has shared locks and NOTIFY.
#[test]
fn old_master_refuses_new_features() {
    let new = Version::New.setup().start();
    let old = Version::Old.replica_of(&new);
    let mut listener = Listener::start(&new, "news");
    let mut client = new.client();
    assert_eq!(client.run("LOCK.SHARE cache a-9d07 PX 8000"), 1);
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    assert_eq!(client.run("LOCK.ACQUIRE door bob PX 600000 BLOCK 0 NOTIFY news"), Reply::waiting());
    change_places(&new, &old);
    listener.hears("lost", "bob", "door");
    let mut client = old.client();
    for line in ["LOCK.ACQUIRE cache c-11d9 PX 30000 BLOCK 1000", "LOCK.RELEASE cache a-9d07", "LOCK.INFO cache"] {
        assert_eq!(client.run(line).code(), "WRONGTYPE", "{line}");
    }
    assert!(client.run("LOCK.SHARE cache a-9d07 EX 30").error().starts_with("ERR unknown command"));
    assert_eq!(client.run("LOCK.ACQUIRE door bob PX 600000 BLOCK 1000 NOTIFY news").error(), "ERR syntax error");
    eventually("the last share ends", || client.run("LOCK.ACQUIRE cache c-11d9 PX 30000") == 1);
}
