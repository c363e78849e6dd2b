//! A cluster of two masters, whose slots can be moved.

use std::thread::sleep;
use std::time::{Duration, Instant};

use support::cluster::{bus_port, id_of};
use support::{Client, Protocol, Reply, Server, Setup, one_node};

use crate::keys::DATABASES;

/// The first and the last slot of each node.
const RANGES: [(i64, i64); 2] = [(0, 8191), (8192, 16_383)];
const AGREEMENT: Duration = Duration::from_secs(20);
/// When a server that may have given up is asked again.
const AGAIN: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(5);

/// In a cluster there is one database; each of those that the keys have elsewhere is a slot here.
pub struct Cluster {
    nodes: Vec<Server>,
    realms: Vec<Realm>,
}

/// A slot, with what makes a key one of it.
pub struct Realm {
    pub slot: i64,
    pub tag: String,
    /// The number of the node that has it.
    pub node: usize,
}

impl Cluster {
    /// Starts it; Err when the nodes do not agree.
    pub fn start(setup: &Setup) -> Result<Self, String> {
        let setup = setup.clone().config("cluster-require-full-coverage no");
        let nodes: Vec<Server> = RANGES.iter().map(|_| one_node::without_slots(&setup)).collect();
        for (epoch, (node, (first, last))) in nodes.iter().zip(RANGES).enumerate() {
            let mut client = node.client();
            client.ok(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
            client.ok(&format!("CLUSTER SET-CONFIG-EPOCH {}", epoch + 1));
        }
        nodes[0].client().ok(&format!("CLUSTER MEET 127.0.0.1 {} {}", nodes[1].port(), bus_port(&nodes[1])));
        let realms = (0..DATABASES as usize).map(|number| realm(&nodes, number)).collect();
        let cluster = Self { nodes, realms };
        let works = |node: &Server| {
            let text = node.client().run("CLUSTER INFO").string();
            ["cluster_state:ok", "cluster_slots_ok:16384"].iter().all(|line| text.lines().any(|own| own == *line))
        };
        if !in_time(|| cluster.nodes.iter().all(works)) {
            return Err("the nodes of the cluster do not agree".to_owned());
        }
        Ok(cluster)
    }

    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    pub fn realms(&self) -> &[Realm] {
        &self.realms
    }

    /// The port of the node that has a realm.
    pub fn port_of(&self, number: usize) -> u16 {
        self.nodes[self.realms[number].node].port()
    }

    /// Moves a realm to the other node. Between the first step and the last of the classic way, `between` is called.
    pub fn move_realm(
        &mut self,
        number: usize,
        atomically: bool,
        between: impl FnOnce(&Move<'_>),
    ) -> Result<(), String> {
        let realm = &self.realms[number];
        let (from, to) = (&self.nodes[realm.node], &self.nodes[1 - realm.node]);
        let step = Move { realm, from, to };
        if atomically {
            step.as_a_whole()?
        } else {
            step.key_by_key(between)?
        }
        let node = 1 - realm.node;
        self.realms[number].node = node;
        Ok(())
    }
}

/// A realm that the nodes have in turn, in a slot that no other has.
fn realm(nodes: &[Server], number: usize) -> Realm {
    let node = number % nodes.len();
    let (first, last) = RANGES[node];
    let mut client = nodes[node].client();
    let mut realms = (number * 1000..).map(|attempt| {
        let tag = format!("{{{attempt}}}");
        let slot = client.run(&format!("CLUSTER KEYSLOT {tag}")).int();
        Realm { slot, tag, node }
    });
    realms.find(|realm| (first..=last).contains(&realm.slot)).expect("a tag for every slot")
}

/// A slot on its way.
pub struct Move<'c> {
    pub realm: &'c Realm,
    pub from: &'c Server,
    pub to: &'c Server,
}

impl Move<'_> {
    fn key_by_key(&self, between: impl FnOnce(&Self)) -> Result<(), String> {
        let (slot, from, to) = (self.realm.slot, id_of(self.from), id_of(self.to));
        insist(self.to, &format!("CLUSTER SETSLOT {slot} IMPORTING {from}"))?;
        insist(self.from, &format!("CLUSTER SETSLOT {slot} MIGRATING {to}"))?;
        between(self);
        self.move_keys()?;
        let owns = format!("CLUSTER SETSLOT {slot} NODE {to}");
        insist(self.to, &owns)?;
        insist(self.from, &owns)
    }

    /// Moves the keys that are there, a few at a time. None can be added, since who asks for one is sent on.
    fn move_keys(&self) -> Result<(), String> {
        let deadline = Instant::now() + AGREEMENT;
        while Instant::now() < deadline {
            let names =
                match run(self.from, &[b"CLUSTER", b"GETKEYSINSLOT", self.realm.slot.to_string().as_bytes(), b"8"]) {
                    Reply::List(names) if names.is_empty() => return Ok(()),
                    Reply::List(names) => names,
                    _ => continue,
                };
            let port = self.to.port().to_string();
            let mut words: Vec<&[u8]> = vec![b"MIGRATE", b"127.0.0.1", port.as_bytes(), b"", b"0", b"5000", b"KEYS"];
            words.extend(names.iter().map(Reply::bytes));
            run(self.from, &words);
        }
        Err("the keys of a slot were not moved".to_owned())
    }

    /// The server itself moves the slot. It may give up; then it is asked again.
    fn as_a_whole(&self) -> Result<(), String> {
        let (slot, to) = (self.realm.slot, id_of(self.to));
        let of_redis = moves_by_import(self.to);
        let mut asked: Option<Instant> = None;
        let moved = in_time(|| {
            if asked.is_none_or(|at| at.elapsed() > AGAIN) {
                asked = Some(Instant::now());
                if of_redis {
                    ask(self.to, &format!("CLUSTER MIGRATION IMPORT {slot} {slot}"));
                } else {
                    ask(self.from, &format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {to}"));
                }
            }
            owns(self.to, slot) && !owns(self.from, slot)
        });
        if moved { Ok(()) } else { Err("a slot was not moved as a whole".to_owned()) }
    }
}

/// Whether the server moves slots by itself.
pub fn moves_slots(server: &Server) -> bool {
    moves_by_import(server) || !ask(server, "CLUSTER GETSLOTMIGRATIONS").is_error()
}

fn moves_by_import(server: &Server) -> bool {
    !ask(server, "CLUSTER MIGRATION STATUS ALL").is_error()
}

/// Whether the node itself serves the slot, as far as it knows.
fn owns(node: &Server, slot: i64) -> bool {
    let Reply::Text(nodes) = ask(node, "CLUSTER NODES") else { return false };
    let nodes = String::from_utf8_lossy(&nodes).into_owned();
    let Some(own) = nodes.lines().find(|line| line.contains("myself")) else { return false };
    // Eight fields come before the slots; those in brackets are on their way.
    own.split(' ').skip(8).filter(|range| !range.starts_with('[')).any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse::<i64>().unwrap_or(-1);
        (number(first)..=number(last)).contains(&slot)
    })
}

fn insist(node: &Server, line: &str) -> Result<(), String> {
    let mut last = Reply::Nil;
    let done = in_time(|| {
        last = ask(node, line);
        last == "OK"
    });
    if done { Ok(()) } else { Err(format!("{line} is answered {last:?}")) }
}

/// What a node answers on a connection of its own, which another fault may close.
fn ask(node: &Server, line: &str) -> Reply {
    Client::connect(node.port(), Protocol::Resp2).map_or(Reply::Closed, |mut client| client.run(line))
}

fn run(node: &Server, words: &[&[u8]]) -> Reply {
    Client::connect(node.port(), Protocol::Resp2).map_or(Reply::Closed, |mut client| client.call(words))
}

fn in_time(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + AGREEMENT;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        sleep(POLL);
    }
    true
}
