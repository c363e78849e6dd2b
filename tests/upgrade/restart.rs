//! A server is restarted with the other version, on its own AOF or RDB.

use support::parallel::for_each;
use support::{Reply, Waiter};

use super::versions::{Version, WAYS, still_holds, take_locks};

#[test]
fn locks_outlast_restart_with_other_version() {
    for_each(&WAYS, |&(from, to)| {
        for (store, shutdown) in [("appendonly yes", "NOSAVE"), ("appendonly no", "SAVE")] {
            let mut server = from.setup().config(store).start();
            let lease_end = take_locks(&mut server.client());
            let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 600000 BLOCK 0");
            server.shut_down(shutdown);
            assert_eq!(bob.reply(), Reply::Closed);

            let server = to.setup().config(store).in_directory_of(&server).start();
            assert_eq!(Version::of(&server), to);
            let mut alice = server.client();
            still_holds(&mut alice, lease_end);
            let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 600000 BLOCK 0");
            assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
            assert_eq!(bob.reply(), 1);
        }
    });
}

/// So these settings come last in an upgrade.
#[test]
fn old_version_does_not_start_with_new_settings() {
    for line in ["lock.recovery-ms 1000", "lock.max-lease-ms 1000", "user worker on nopass +lock.share"] {
        assert!(Version::Old.setup().config(line).try_start().is_err(), "{line}");
        Version::New.setup().config(line).start();
    }
}
