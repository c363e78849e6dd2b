//! The planned failover with Sentinel of docs/guides/upgrading.md, step by step: replicas first, then the old master.

use std::fs;

use support::replicas::{in_step, in_time};
use support::sentinel::{Sentinel, new_master};
use support::{Client, Server, Waiter, repository};

use super::versions::{Version, is_ended_by_demotion};

/// Restarts a replica with the new version.
#[track_caller]
fn upgrade(server: &mut Server, master: u16) {
    let setup = Version::New.setup().on_port(server.port()).in_directory_of(server);
    server.shut_down("NOSAVE");
    *server = setup.config(&format!("replicaof 127.0.0.1 {master}")).start();
    in_step(server);
    assert_eq!(Version::of(server), Version::New);
}

/// Waits until every replica has all that its master has written.
#[track_caller]
fn replicas_have_all(master: &mut Client, replicas: usize) {
    let number = |text: &str| text.parse::<u64>().expect("an offset");
    let written = number(&master.info("replication", "master_repl_offset").expect("an offset"));
    in_time("the replicas have all", || {
        let info = master.run("INFO replication").string();
        let offsets = info.split("state=online,offset=").skip(1).filter_map(|rest| rest.split(',').next());
        offsets.map(number).filter(|&offset| offset >= written).count() == replicas
    });
}

#[test]
fn paused_master_grants_nothing_in_planned_failover() {
    let mut old = Version::Old.setup().start();
    let mut replicas = [(); 2].map(|()| Version::Old.replica_of(&old));
    replicas.iter_mut().for_each(|replica| upgrade(replica, old.port()));
    let sentinels = Sentinel::start_three(&old, replicas.len());
    let mut admin = old.client();
    assert_eq!(admin.run("LOCK.ACQUIRE gate carol PX 600000"), 1);
    let mut waiter = Waiter::start(&old, "LOCK.ACQUIRE gate dave PX 600000 BLOCK 0");
    let (mut alice, mut new) = (None, None);

    let page = fs::read_to_string(repository().join("docs/guides/upgrading.md")).expect("docs/guides/upgrading.md");
    let steps = page.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the steps");
    for step in steps.lines() {
        match step.split_once("> ") {
            Some(("old master", "CLIENT PAUSE 60000 WRITE")) => {
                admin.ok("CLIENT PAUSE 60000 WRITE");
                alice = Some(Waiter::start(&old, "LOCK.ACQUIRE door alice PX 600000"));
            }
            None if step == "# each replica has what the master had written" => replicas_have_all(&mut admin, 2),
            Some(("sentinel", "SENTINEL FAILOVER locks")) => sentinels[0].fail_over(),
            None if step == "# the sentinels name the new master" => {
                let master = new_master(&sentinels, old.port(), &replicas);
                let mut client = master.client();
                assert_eq!(client.run("LOCK.ACQUIRE door bob PX 600000"), 1);
                assert_eq!(client.run("LOCK.RELEASE gate carol"), 0, "the last grant is known");
                assert!(alice.as_ref().is_some_and(Waiter::is_blocked), "the old master has not replied");
                new = Some(master);
            }
            Some(("old master", "REPLICAOF 10.0.0.2 6379")) => {
                admin.ok(&format!("REPLICAOF 127.0.0.1 {}", new.map_or(0, Server::port)));
                is_ended_by_demotion(&waiter.reply());
            }
            Some(("old master", "CLIENT UNPAUSE")) => {
                admin.ok("CLIENT UNPAUSE");
                assert_eq!(alice.as_mut().expect("a pause before").reply().code(), "READONLY");
            }
            Some(("old master", command)) => admin.ok(command),
            _ => panic!("{step}: an unknown step"),
        }
    }
    let new = new.expect("a step in which there is a new master");
    upgrade(&mut old, new.port());
    assert_eq!(new.client().run("LOCK.SHARE cache alice PX 600000"), 1);
}
