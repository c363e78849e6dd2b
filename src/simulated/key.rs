//! Keys of the keyspace: Strings, and Hashes with one field. The functions for Sorted Sets are in `sorted_set`.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::UnixMs;
use super::blocked;
use super::blocked_client::{Blocked, BlockedClient, BlockedClientId};
use super::cluster::{Cluster, slot_of};
use super::context::{Context, ContextFlags};
use super::crash::crash;
use super::event::Event;
use super::event_log::{LoggedEvent, Writer};
use super::expiry;
use super::faults::{self, Fault};
use super::keyspace::{Entry, Value};
use super::kinds::{Mode, ValueType};
use super::main_thread::Server;
use super::module::Module;
use super::node_state;
use super::stream::Effect;
use super::string::StringRef;

/// An open key. A borrow of its bytes ends before the next write to it.
pub struct Key<'k, 'c, M> {
    ctx: &'k mut Context<'c, M>,
    name: StringRef<'k>,
    mode: Mode,
    /// A copy of the value and the expiry, from which bytes are borrowed.
    entry: Option<Entry>,
    /// Whether the key did not exist when it was opened.
    was_missing: bool,
    /// Whether the server has not opened the key, because a save without a fork reads it.
    is_in_use: bool,
}

impl<'c, M> Context<'c, M> {
    /// Opens a key of the selected database. An expired key is deleted, and the module is notified of that inside this call.
    pub fn open<'k>(&'k mut self, name: StringRef<'k>, mode: Mode) -> Key<'k, 'c, M> {
        if node_state::with(|node| node.running.callback || node.running.scan) {
            crash("a key is opened in an event, perhaps in the middle of a scan");
        }
        let is_visible = faults::has(Fault::ExpiredKeyShown) || expiry::expire(self.db(), name.0);
        let read = |db| node_state::with(|node| node.keyspace.get(db, name.0).cloned());
        let entry = if is_visible { read(self.db()) } else { None };
        // The server does not run a command whose key is in use, so only a write outside of commands has to be checked here.
        let is_in_use = matches!(mode, Mode::Write)
            && entry.is_some()
            && node_state::with(|node| node.blockers.saves_without_fork && node.running.command.is_none());
        let entry = entry.filter(|_| !is_in_use);
        let was_missing = entry.is_none();
        Key { ctx: self, name, mode, entry, was_missing, is_in_use }
    }
}

impl<'k, 'c, M> Key<'k, 'c, M> {
    pub fn ctx(&self) -> &Context<'c, M> {
        self.ctx
    }

    /// Returns the right to use the server.
    #[inline(always)]
    pub fn server(&self) -> &Server {
        self.ctx.server()
    }

    /// Returns the right to call the server.
    pub fn server_mut(&mut self) -> &mut Server {
        self.ctx.server_mut()
    }

    pub fn name(&self) -> StringRef<'k> {
        self.name
    }

    /// Returns whether the server has not opened the key for writing, because a save without a fork reads it.
    pub fn is_in_use(&self) -> bool {
        self.is_in_use
    }

    pub fn is_empty(&self) -> bool {
        self.entry.is_none()
    }

    pub fn value_type(&self) -> ValueType {
        match self.entry.as_ref().map(|entry| &entry.value) {
            None => ValueType::Empty,
            Some(Value::String(_)) => ValueType::String,
            Some(Value::Hash(_)) => ValueType::Hash,
            Some(Value::SortedSet(_)) => ValueType::SortedSet,
            Some(Value::Other(_)) => ValueType::Other,
        }
    }

    /// Returns the expiry of the key, in Unix milliseconds. Returns `None` if the key does not expire or does not exist.
    pub fn expiry(&self) -> Option<UnixMs> {
        self.entry.as_ref().and_then(|entry| entry.expiry)
    }

    /// Returns the expiry of a key that is known to exist, as [`expiry`](Self::expiry) does.
    pub fn expiry_of_value(&self) -> Option<UnixMs> {
        self.expiry()
    }

    /// Returns the bytes of a String. Returns no bytes for any other value.
    pub fn string(&self) -> &[u8] {
        match self.entry.as_ref().map(|entry| &entry.value) {
            Some(Value::String(bytes)) => bytes,
            _ => &[],
        }
    }

    /// Replaces the value by a String, and the expiry by this one.
    pub fn set_string(&mut self, value: StringRef<'_>, expiry: Option<UnixMs>) {
        let expiry = expiry.filter(|_| !faults::has(Fault::SetLosesExpiry));
        self.write(Some(Entry { value: Value::String(value.bytes().into()), expiry }));
    }

    /// Sets a field of a Hash. A key that does not exist becomes a Hash. Has no effect on any other value.
    pub fn set_field(&mut self, field: StringRef<'_>, value: StringRef<'_>) {
        let empty = Entry { value: Value::Hash(BTreeMap::new()), expiry: None };
        let mut entry = self.entry.clone().unwrap_or(empty);
        if let Value::Hash(fields) = &mut entry.value {
            fields.insert(field.bytes().to_vec(), value.bytes().to_vec());
            self.write(Some(entry));
        }
    }

    /// Sets the expiry of an existing key.
    pub fn set_expiry(&mut self, at: UnixMs) {
        if let Some(entry) = self.entry.clone() {
            self.write(Some(Entry { expiry: Some(at), ..entry }));
        }
    }

    /// Removes the expiry of an existing key.
    pub fn remove_expiry(&mut self) {
        if let Some(entry) = self.entry.clone() {
            self.write(Some(Entry { expiry: None, ..entry }));
        }
    }

    /// Deletes the key.
    pub fn delete(&mut self) {
        if self.entry.is_some() {
            self.write(None);
        }
    }

    pub(super) fn entry(&self) -> Option<&Entry> {
        self.entry.as_ref()
    }

    pub(super) fn write(&mut self, entry: Option<Entry>) {
        if matches!(self.mode, Mode::Read) || self.is_in_use {
            return;
        }
        let (db, name) = (self.ctx.db(), self.name.0);
        node_state::with(|node| {
            let now = node.now_ms();
            let own_accord = node.running.command.is_none();
            let is_elsewhere = |cluster: &Cluster| cluster.is_down || cluster.elsewhere.contains(&slot_of(name));
            if own_accord && node.cluster.as_ref().is_some_and(is_elsewhere) {
                crash("a write to a key of another node");
            }
            let is_leaving = |cluster: &Cluster| cluster.migrating.contains(&slot_of(name));
            if own_accord && self.was_missing && node.cluster.as_ref().is_some_and(is_leaving) {
                crash("a write to a key that may be at another node already");
            }
            if let Some(objection) = node.blockers.objection(now).filter(|_| own_accord) {
                crash(objection);
            }
            if self.entry.is_none() && node.keyspace.get(db, name).is_some() {
                crash("a key is added that has expired and is still there");
            }
            node.keyspace.set(db, name, entry.clone());
            node.note(LoggedEvent::Wrote { db, key: Rc::from(name), entry: entry.clone(), writer: Writer::Module });
        });
        self.entry = entry;
    }

    /// Reads the only field of a Hash and its value. Returns `None` for a Hash with more fields, and for any other value. `read`
    /// gets `None` instead of the field if the field is `likely`.
    pub fn only_field<R>(&self, likely: Option<StringRef<'_>>, read: impl Fn(Option<&[u8]>, &[u8]) -> R) -> Option<R> {
        match self.entry.as_ref().map(|entry| &entry.value) {
            Some(Value::Hash(fields)) if fields.len() == 1 => fields.first_key_value().map(|(field, value)| {
                let is_likely = likely.is_some_and(|likely| likely.bytes() == field.as_slice());
                read((!is_likely).then_some(field), value)
            }),
            _ => None,
        }
    }

    /// Signals to WATCH and client-side caches that the key has changed. The events are ignored, because no simulated client
    /// subscribes to them.
    pub fn signal(&mut self, _events: &[Event]) {
        let (db, key) = (self.ctx.db(), Rc::from(self.name.0));
        node_state::with(|node| {
            if self.entry.as_ref().is_some_and(|entry| entry.is_over(node.now_ms())) {
                crash("an event of a key that has expired, which would delete it while it is open");
            }
            if !faults::has(Fault::WatchersNotTold) {
                node.note(LoggedEvent::Signalled { db, key });
            }
        });
    }

    /// Replicates `SET key value [PXAT expiry]`, with the expiry as digits. Returns whether the server accepts it.
    #[must_use]
    pub fn replicate_set(&mut self, value: StringRef<'_>, expiry: Option<&[u8]>) -> bool {
        let pxat = expiry.map(|digits| [b"PXAT", digits]).into_iter().flatten();
        self.replicate("SET", [value.bytes()].into_iter().chain(pxat))
    }

    /// Replicates `HSET key field value`. Returns whether the server accepts it.
    #[must_use]
    pub fn replicate_hset(&mut self, field: StringRef<'_>, value: StringRef<'_>) -> bool {
        self.replicate("HSET", [field.bytes(), value.bytes()].into_iter())
    }

    /// Replicates `PEXPIREAT key expiry`, with the expiry as digits. Returns whether the server accepts it.
    #[must_use]
    pub fn replicate_pexpireat(&mut self, expiry: &[u8]) -> bool {
        self.replicate("PEXPIREAT", [expiry].into_iter())
    }

    /// Replicates `PERSIST key`. Returns whether the server accepts it.
    #[must_use]
    pub fn replicate_persist(&mut self) -> bool {
        self.replicate("PERSIST", [].into_iter())
    }

    /// Replicates `ZADD key score member`, with the score as digits or `inf`. Returns whether the server accepts it.
    #[must_use]
    pub fn replicate_zadd(&mut self, score: &[u8], member: StringRef<'_>) -> bool {
        self.replicate("ZADD", [score, member.bytes()].into_iter())
    }

    /// Replicates `ZREM key member`. Returns whether the server accepts it.
    #[must_use]
    pub fn replicate_zrem(&mut self, member: StringRef<'_>) -> bool {
        self.replicate("ZREM", [member.bytes()].into_iter())
    }

    /// Replicates `DEL key`. Returns whether the server accepts it.
    #[must_use]
    pub fn replicate_del(&mut self) -> bool {
        self.replicate("DEL", [].into_iter())
    }

    fn replicate<'w>(&mut self, command: &str, words: impl Iterator<Item = &'w [u8]>) -> bool {
        if self.is_in_use {
            crash("a write to a key in use is replicated");
        }

        let db = if faults::has(Fault::EffectsInDatabaseZero) { 0 } else { self.ctx.db() };
        let mut effect = Effect::new(db, [command.as_bytes(), self.name.0]);
        effect.words.extend(words.map(<[u8]>::to_vec));
        node_state::with(|node| {
            let is_refused = node.blockers.replicates_nothing && node.running.command.is_none();
            let is_lost = match command {
                "DEL" => faults::has(Fault::DelNotReplicated),
                "PEXPIREAT" => faults::has(Fault::PexpireatNotReplicated),
                "ZREM" => faults::has(Fault::ZremNotReplicated),
                _ => false,
            };
            if !is_refused && !is_lost {
                node.unit.push(effect);
            }
            !is_refused
        })
    }
}

impl<M: Module> Key<'_, '_, M> {
    /// Blocks the client that sent this command, until [`unblock`](super::unblock). Returns `None` where a client cannot be
    /// blocked: outside a command, for a second time in a command, in a transaction or a script, and on Valkey for a client with
    /// a subscription.
    pub fn block(&mut self, id: BlockedClientId) -> Option<BlockedClient> {
        if self.ctx.flags().contains(ContextFlags::DENY_BLOCKING) {
            return None;
        }
        let (client, key) = (self.ctx.client_id(), (self.ctx.db(), self.name.0.to_vec()));
        let tag = node_state::with(|node| {
            if node.kind.blocks_no_subscriber() && node.clients.get(&client)?.is_subscribed() {
                return None;
            }
            let tag = node.running.command.filter(|_| !node.running.blocked);
            node.running.blocked |= tag.is_some();
            tag
        })?;
        blocked::add(id, Blocked::new(client, tag, key));
        Some(BlockedClient { answered: false })
    }
}
