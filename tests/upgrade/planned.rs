//! A failover that is planned, by Sentinel: the old master goes on for some seconds, and what keeps it from granting locks.

use support::replicas::{in_step, in_time, role};
use support::sentinel::{Sentinel, new_master};
use support::{Client, Reply, Server, Waiter, eventually, now_ms};

use super::versions::{Version, is_told_off};

const ALICE: &str = "LOCK.ACQUIRE door alice PX 600000";
const BOB: &str = "LOCK.ACQUIRE door bob PX 600000";

/// An old master, two new replicas, and sentinels that watch them.
struct Set {
    master: Server,
    replicas: [Server; 2],
    sentinels: Vec<Sentinel>,
}

impl Set {
    #[track_caller]
    fn start(config: &str) -> Self {
        let master = Version::Old.setup().config(config).start();
        let replica = || {
            let following = format!("replicaof 127.0.0.1 {}", master.port());
            let replica = Version::New.setup().config(config).config(&following).start();
            in_step(&replica);
            replica
        };
        let replicas = [replica(), replica()];
        let sentinels = Sentinel::start_three(&master, replicas.len());
        Self { master, replicas, sentinels }
    }

    /// Has Sentinel promote a replica, and returns that.
    #[track_caller]
    fn fail_over(&self) -> &Server {
        self.sentinels[0].fail_over();
        new_master(&self.sentinels, self.master.port(), &self.replicas)
    }

    fn old_is_a_master(&self) -> bool {
        role(&self.master).as_deref() == Some("master")
    }
}

/// Waits until every replica has all that its master has written until now.
#[track_caller]
pub fn replicas_have_all(master: &mut Client, replicas: usize) {
    let number = |text: &str| text.parse::<u64>().expect("an offset");
    let written = number(&master.info("replication", "master_repl_offset").expect("an offset"));
    in_time("the replicas have all", || {
        let info = master.run("INFO replication").string();
        let offsets = info.split("state=online,offset=").skip(1).filter_map(|rest| rest.split(',').next());
        offsets.map(number).filter(|&offset| offset >= written).count() == replicas
    });
}

/// Why one of the other two is needed.
#[test]
fn without_a_pause_both_masters_grant_one_lock() {
    let set = Set::start("");
    let mut on_old = set.master.client();
    let new = set.fail_over();
    assert_eq!(on_old.run(ALICE), 1);
    assert_eq!(new.client().run(BOB), 1);
    assert!(set.old_is_a_master());
}

#[test]
fn a_pause_of_writes_keeps_the_old_master_from_granting() {
    let set = Set::start("");
    let mut admin = set.master.client();
    assert_eq!(admin.run("LOCK.ACQUIRE gate carol PX 600000"), 1);
    let mut waiter = Waiter::start(&set.master, "LOCK.ACQUIRE gate dave PX 600000 BLOCK 0");
    admin.ok("CLIENT PAUSE 60000 WRITE");
    replicas_have_all(&mut admin, set.replicas.len());
    let mut alice = Waiter::start(&set.master, ALICE);

    let new = set.fail_over();
    assert_eq!(new.client().run(BOB), 1);
    assert_eq!(new.client().run("LOCK.RELEASE gate carol"), 0, "what was granted last is known");
    assert!(set.old_is_a_master());
    assert!(alice.is_blocked(), "she has no answer");
    admin.ok(&format!("REPLICAOF 127.0.0.1 {}", new.port()));
    is_told_off(&waiter.reply());
    admin.ok("CLIENT UNPAUSE");
    assert_eq!(alice.reply().code(), "READONLY");
}

#[test]
fn without_all_replicas_the_old_master_grants_nothing() {
    let set = Set::start("min-replicas-to-write 2\nmin-replicas-max-lag 5");
    let mut on_old = set.master.client();
    eventually("its replicas are good enough", || on_old.run("LOCK.ACQUIRE gate carol PX 600000") == 1);
    let new = set.fail_over();
    let mut on_new = new.client();
    let refused = on_old.run(ALICE);
    assert!(refused == Reply::Closed || ["NOREPLICAS", "READONLY"].contains(&refused.code()), "{refused:?}");
    assert_eq!(on_new.run(BOB).code(), "NOREPLICAS", "until the old master follows it");
    let refused_since = now_ms();
    in_time("Sentinel makes a replica of the old master, and the new one has all again", || on_new.run(BOB) == 1);
    eprintln!("no locks for {} ms", now_ms() - refused_since);
    assert!(!set.old_is_a_master());
}
