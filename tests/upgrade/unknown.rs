//! What only the new version knows, and what becomes of it at an old one.

use support::listener::Listener;
use support::{Reply, eventually};

use super::versions::{Version, change_places};

#[test]
fn an_old_server_refuses_what_only_a_new_one_knows() {
    let server = Version::Old.setup().start();
    let mut client = server.client();
    for line in ["LOCK.SHARE cache a-9d07 EX 30", "LOCK.QUEUES", "LOCK.SLOWLOG LEN"] {
        assert!(client.run(line).error().starts_with("ERR unknown command"), "{line}");
    }
    let notify = "LOCK.ACQUIRE door a-81f3 PX 30000 BLOCK 1000 NOTIFY news";
    assert_eq!(client.run(notify).error(), "ERR syntax error");
    for line in
        ["CONFIG SET lock.recovery-ms 1000", "CONFIG SET lock.slowlog-ms 1000", "ACL SETUSER worker +lock.share"]
    {
        assert!(client.run(line).is_error(), "{line}");
    }
    assert_eq!(client.run("EXISTS door cache"), 0);
}

/// So these come into the configuration when there is no way back any more.
#[test]
fn an_old_server_does_not_start_with_settings_or_rights_that_only_a_new_one_knows() {
    for line in ["lock.recovery-ms 1000", "lock.max-lease-ms 1000", "user worker on nopass +lock.share"] {
        assert!(Version::Old.setup().config(line).try_start().is_err(), "{line}");
        Version::New.setup().config(line).start();
    }
}

#[test]
fn a_shared_lock_is_somebody_elses_data_at_an_old_master_until_it_ends() {
    let new = Version::New.setup().start();
    let old = Version::Old.replica_of(&new);
    let mut client = new.client();
    for token in ["a-9d07", "b-41ce"] {
        assert_eq!(client.run(&format!("LOCK.SHARE cache {token} PX 8000")), 1);
    }
    change_places(&new, &old);
    let mut client = old.client();
    assert_eq!(client.run("TYPE cache"), "zset");
    for line in ["LOCK.ACQUIRE cache c-11d9 PX 30000 BLOCK 1000", "LOCK.RELEASE cache a-9d07", "LOCK.INFO cache"] {
        assert_eq!(client.run(line).code(), "WRONGTYPE", "{line}");
    }
    eventually("its leases have ended", || client.run("LOCK.ACQUIRE cache c-11d9 PX 30000") == 1);
}

#[test]
fn who_waits_for_a_message_at_a_new_master_is_told_when_an_old_one_takes_its_place() {
    let new = Version::New.setup().start();
    let old = Version::Old.replica_of(&new);
    let mut listener = Listener::start(&new, "news");
    let mut client = new.client();
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    assert_eq!(client.run("LOCK.ACQUIRE door bob PX 600000 BLOCK 0 NOTIFY news"), Reply::waiting());
    change_places(&new, &old);
    listener.hears("lost", "bob", "door");
}
