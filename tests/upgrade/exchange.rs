//! The module is exchanged in a server that runs. docs/guides/upgrading.md says why that is not the way to upgrade: no other
//! client may have sent a command of the module before, and no ACL rule may name one.

use support::Waiter;

use super::versions::{Version, WAYS, still_holds, take_locks};

#[test]
fn what_is_held_outlasts_an_exchange() {
    for (from, to) in WAYS {
        let server = from.setup().start();
        let mut alice = server.client();
        let lease_end = take_locks(&mut alice);
        alice.ok("MODULE UNLOAD lock");
        assert_eq!(alice.run("GET door"), "alice", "a plain key");
        alice.ok(&format!("MODULE LOADEX {} CONFIG lock.max-waiters 7", to.module().display()));
        assert_eq!(Version::of(&server), to);
        assert_eq!(alice.run("CONFIG GET lock.max-waiters").get("lock.max-waiters"), "7");
        still_holds(&mut alice, lease_end);
    }
}

#[test]
fn no_version_is_exchanged_while_somebody_waits_or_a_lock_belongs_to_a_connection() {
    for version in [Version::Old, Version::New] {
        let server = version.setup().start();
        let mut alice = server.client();
        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000 SESSION"), 1);
        assert!(alice.run("MODULE UNLOAD lock").is_error(), "{version:?}: a session");
        let waiter = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        drop(alice);
        let mut admin = server.client();
        let (reply, _bob) = waiter.into_client();
        assert_eq!(reply, 1);
        let _carol = Waiter::start(&server, "LOCK.ACQUIRE door carol BLOCK 0");
        assert!(admin.run("MODULE UNLOAD lock").is_error(), "{version:?}: a waiter");
    }
}
