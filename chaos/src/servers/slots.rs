//! A cluster of two masters, whose slots can be moved. In a cluster there is one database; a slot stands for each other
//! one.

use std::time::{Duration, Instant};

use support::cluster::{Node, Tag, form, id_of, slots_of, start_node, tags_in};
use support::migration::has_slot;
use support::{Client, Protocol, Reply, Server, Setup, happens_within};

use crate::keys::DATABASES;

const MASTERS: usize = 2;
const AGREEMENT: Duration = Duration::from_secs(20);
const AGAIN: Duration = Duration::from_secs(2);

pub struct SlotCluster {
    pub nodes: Vec<Server>,
    pub slots: Vec<Slot>,
}

/// A slot that stands for a database, and the index of the node that has it.
pub struct Slot {
    pub tag: Tag,
    node: usize,
}

impl SlotCluster {
    pub fn start(setup: &Setup) -> Self {
        let setup = setup.clone().config("cluster-require-full-coverage no");
        let nodes: Vec<Server> = (0..MASTERS).map(|_| start_node(&setup)).collect();
        form(&nodes.iter().map(Node::of).collect::<Vec<_>>(), &[0, 1]);
        let slot = |database: usize| {
            let (node, number) = (database % MASTERS, database / MASTERS);
            let tag = tags_in(&nodes[node], slots_of(node, MASTERS)).nth(number).expect("a tag for every slot");
            Slot { tag, node }
        };
        let slots = (0..DATABASES as usize).map(slot).collect();
        Self { nodes, slots }
    }

    pub fn port_of(&self, database: usize) -> u16 {
        self.nodes[self.slots[database].node].port()
    }

    pub fn move_slot(&mut self, database: usize, whole: bool) -> Result<(), String> {
        let Slot { tag: Tag { slot, .. }, node } = self.slots[database];
        let step = Move { slot, from: &self.nodes[node], to: &self.nodes[1 - node] };
        if whole {
            step.as_a_whole()?
        } else {
            step.key_by_key()?
        }
        self.slots[database].node = 1 - node;
        Ok(())
    }
}

struct Move<'c> {
    slot: i64,
    from: &'c Server,
    to: &'c Server,
}

impl Move<'_> {
    fn key_by_key(&self) -> Result<(), String> {
        let (slot, from, to) = (self.slot, id_of(self.from), id_of(self.to));
        insist(self.to, &format!("CLUSTER SETSLOT {slot} IMPORTING {from}"))?;
        insist(self.from, &format!("CLUSTER SETSLOT {slot} MIGRATING {to}"))?;
        // A few keys at a time. No key can be added, since requests for new keys are sent on.
        let port = self.to.port().to_string();
        in_time("the keys of a slot are moved", || {
            let Reply::List(names) = self.from.ask(&format!("CLUSTER GETKEYSINSLOT {slot} 8")) else { return false };
            let mut words: Vec<&[u8]> = vec![b"MIGRATE", b"127.0.0.1", port.as_bytes(), b"", b"0", b"5000", b"KEYS"];
            words.extend(names.iter().map(Reply::bytes));
            if !names.is_empty() {
                Client::connect(self.from.port(), Protocol::Resp2).map(|mut client| client.call(&words));
            }
            names.is_empty()
        })?;
        let owns = format!("CLUSTER SETSLOT {slot} NODE {to}");
        insist(self.to, &owns)?;
        insist(self.from, &owns)
    }

    /// The server itself moves the slot. It can cancel the move; then it is asked again.
    fn as_a_whole(&self) -> Result<(), String> {
        let (slot, to, by_import) = (self.slot, id_of(self.to), moves_by_import(self.to));
        let mut asked: Option<Instant> = None;
        let nodes_of =
            |node: &Server| if let Reply::Text(nodes) = node.ask("CLUSTER NODES") { nodes } else { Vec::new() };
        let owns = |node: &Server| has_slot(&String::from_utf8_lossy(&nodes_of(node)), slot);
        in_time("a slot is moved as a whole", || {
            if asked.is_none_or(|at| at.elapsed() > AGAIN) {
                asked = Some(Instant::now());
                if by_import {
                    self.to.ask(&format!("CLUSTER MIGRATION IMPORT {slot} {slot}"));
                } else {
                    self.from.ask(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {to}"));
                }
            }
            owns(self.to) && !owns(self.from)
        })
    }
}

pub fn moves_slots(server: &Server) -> bool {
    moves_by_import(server) || !server.ask("CLUSTER GETSLOTMIGRATIONS").is_error()
}

fn moves_by_import(server: &Server) -> bool {
    !server.ask("CLUSTER MIGRATION STATUS ALL").is_error()
}

fn insist(node: &Server, line: &str) -> Result<(), String> {
    in_time(line, || node.ask(line) == "OK")
}

fn in_time(what: &str, condition: impl FnMut() -> bool) -> Result<(), String> {
    if happens_within(AGREEMENT, condition) { Ok(()) } else { Err(format!("never came true: {what}")) }
}
