//! A rolling restart with Sentinel, as docs/guides/upgrading.md describes it, while clients work: replicas first, then a
//! planned failover, then the old master.

use std::collections::BTreeSet;
use std::fs;
use std::thread;

use support::listener::Listener;
use support::replicas::in_step;
use support::sentinel::{Sentinel, new_master};
use support::{Reply, Server, repository};

use super::planned::replicas_have_all;
use super::versions::Version;
use super::workers::{self, Ledger};

/// Restarts a replica, or who is to become one, with the new version.
#[track_caller]
fn upgrade(server: &mut Server, master: u16) {
    let setup = Version::New.setup().on_port(server.port()).in_directory_of(server);
    server.shut_down("NOSAVE");
    *server = setup.config(&format!("replicaof 127.0.0.1 {master}")).start();
    in_step(server);
    assert_eq!(Version::of(server), Version::New);
}

fn guide() -> String {
    fs::read_to_string(repository().join("docs/guides/upgrading.md")).expect("docs/guides/upgrading.md")
}

/// What the guide says that clients see.
fn known_troubles() -> BTreeSet<String> {
    let page = guide();
    let section = page.split("## What clients see").nth(1).expect("a section about clients");
    let rows = section.split("\n## ").next().unwrap_or_default().lines().filter(|line| line.starts_with("| `"));
    rows.filter_map(|row| row.split('`').nth(1)).map(str::to_owned).collect()
}

/// Does what the guide shows line by line, and returns the new master.
#[track_caller]
fn fail_over<'s>(old: &Server, replicas: &'s [Server], sentinels: &[Sentinel]) -> &'s Server {
    let mut admin = old.client();
    let mut new = None;
    let page = guide();
    let steps = page.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the steps");
    for step in steps.lines() {
        match step.split_once("> ") {
            Some(("sentinel", "SENTINEL FAILOVER locks")) => sentinels[0].fail_over(),
            Some(("old master", "REPLICAOF 10.0.0.2 6379")) => {
                admin.ok(&format!("REPLICAOF 127.0.0.1 {}", new.map_or(0, Server::port)));
            }
            Some(("old master", command)) => admin.ok(command),
            _ if step == "# each replica has what the master had written" => {
                replicas_have_all(&mut admin, replicas.len());
            }
            _ if step == "# the sentinels name the new master" => {
                new = Some(new_master(sentinels, old.port(), replicas));
            }
            _ => panic!("{step}: who does that?"),
        }
    }
    new.expect("a step in which there is a new master")
}

#[track_caller]
fn new_commands_work(server: &Server) {
    let mut client = server.client();
    assert_eq!(client.run("LOCK.SHARE cache alice PX 600000"), 1);
    let mut listener = Listener::start(server, "news");
    assert_eq!(client.run("LOCK.ACQUIRE cache bob PX 1000 BLOCK 0 NOTIFY news"), Reply::waiting());
    assert_eq!(client.run("LOCK.RELEASE cache alice"), 0);
    listener.hears("granted", "bob", "cache");
}

#[test]
fn servers_are_upgraded_one_by_one_while_clients_work() {
    let mut first = Version::Old.setup().start();
    let first_port = first.port();
    let mut replicas = [(); 2].map(|()| Version::Old.replica_of(&first));
    let sentinels = Sentinel::start_three(&first, replicas.len());
    let ledger = Ledger::default();
    thread::scope(|scope| {
        let work = workers::begin(scope, &ledger, &sentinels);
        ledger.goes_on();
        for replica in &mut replicas {
            upgrade(replica, first_port);
            ledger.goes_on();
        }
        assert_eq!(ledger.troubles(), BTreeSet::new(), "clients of the master see nothing of its replicas");

        let new = fail_over(&first, &replicas, &sentinels);
        ledger.goes_on();
        let seen = ledger.troubles();
        eprintln!("a planned failover: {seen:?}");
        assert!(!seen.is_empty() && seen.is_subset(&known_troubles()), "{seen:?}");

        upgrade(&mut first, new.port());
        ledger.goes_on();
        new_commands_work(new);
        drop(work);
    });
}
