//! Moving one slot from a master of a cluster to another.

use super::cluster::{Cluster, bus_port, id_of};
use super::replicas::in_time;
use super::{Client, Reply, Server};

/// A slot on its way.
pub struct Migration<'c> {
    pub cluster: &'c Cluster,
    pub slot: i64,
    pub from: &'c Server,
    pub to: &'c Server,
}

impl Migration<'_> {
    /// The classic way, first step: from now on either node may have a key of the slot.
    #[track_caller]
    pub fn open(&self) {
        let (slot, from, to) = (self.slot, id_of(self.from), id_of(self.to));
        self.to.client().ok(&format!("CLUSTER SETSLOT {slot} IMPORTING {from}"));
        self.from.client().ok(&format!("CLUSTER SETSLOT {slot} MIGRATING {to}"));
    }

    /// The second: moves some keys.
    #[track_caller]
    pub fn move_keys(&self, keys: &[String]) {
        let line = format!("MIGRATE 127.0.0.1 {} \"\" 0 5000 KEYS {}", self.to.port(), keys.join(" "));
        let words: Vec<&str> = line.split(' ').map(|word| if word == "\"\"" { "" } else { word }).collect();
        let reply = self.from.client().call(&words);
        assert!(reply == "OK" || reply == "NOKEY", "{line}: {reply:?}");
    }

    /// The keys that the old node still has.
    #[track_caller]
    pub fn keys_left(&self) -> Vec<String> {
        let keys = self.from.client().run(&format!("CLUSTER GETKEYSINSLOT {} 1000", self.slot));
        keys.items().iter().map(Reply::string).collect()
    }

    /// The last: the slot is the new node's.
    #[track_caller]
    pub fn close(&self) {
        let line = format!("CLUSTER SETSLOT {} NODE {}", self.slot, id_of(self.to));
        self.to.client().ok(&line);
        self.from.client().ok(&line);
        for server in self.cluster.masters() {
            server.client().ok(&line);
        }
    }

    /// All of that with every key.
    #[track_caller]
    pub fn go_key_by_key(&self) {
        self.open();
        let keys = self.keys_left();
        if !keys.is_empty() {
            self.move_keys(&keys);
        }
        self.close();
    }

    /// Gives the classic migration up.
    #[track_caller]
    pub fn call_off(&self) {
        let line = format!("CLUSTER SETSLOT {} STABLE", self.slot);
        self.from.client().ok(&line);
        self.to.client().ok(&line);
    }

    /// The new node claims the slot over the head of the old one, which drops its keys when it hears of that.
    #[track_caller]
    pub fn seize(&self) {
        let mut to = self.to.client();
        // The later claim first: one that is no later than the old node's is given up when that is heard of.
        let bumped = to.run("CLUSTER BUMPEPOCH").string();
        assert!(bumped.starts_with("BUMPED") || bumped.starts_with("STILL"), "{bumped}");
        to.ok(&format!("CLUSTER SETSLOT {} NODE {}", self.slot, id_of(self.to)));
        // A greeting carries the news at once; gossip would take seconds.
        to.ok(&format!("CLUSTER MEET 127.0.0.1 {} {}", self.from.port(), bus_port(self.from)));
        self.wait_until_moved();
    }

    /// Until the old node knows that the slot is the new one's.
    #[track_caller]
    fn wait_until_moved(&self) {
        let (mut from, mut to) = (self.from.client(), self.to.client());
        let has_slot = |client: &mut Client| has_slot(&client.run("CLUSTER NODES").string(), self.slot);
        in_time("the slot has moved", || has_slot(&mut to) && !has_slot(&mut from));
    }

    /// The other way: the server moves the slot as a whole. `false` where it cannot.
    #[track_caller]
    pub fn run_atomically(&self) -> bool {
        let slot = self.slot;
        let (mut from, mut to) = (self.from.client(), self.to.client());
        if !to.run("CLUSTER MIGRATION STATUS ALL").is_error() {
            assert!(!to.run(&format!("CLUSTER MIGRATION IMPORT {slot} {slot}")).is_error());
        } else if !from.run("CLUSTER GETSLOTMIGRATIONS").is_error() {
            from.ok(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {}", id_of(self.to)));
        } else {
            return false;
        }
        self.wait_until_moved();
        true
    }
}

/// Whether the node itself serves the slot, as far as it knows.
pub fn has_slot(nodes: &str, slot: i64) -> bool {
    let own = nodes.lines().find(|line| line.contains("myself")).unwrap_or_default();
    // Eight fields come before the slots; those in brackets are on their way.
    own.split(' ').skip(8).filter(|range| !range.starts_with('[')).any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse::<i64>().expect("a slot");
        (number(first)..=number(last)).contains(&slot)
    })
}
