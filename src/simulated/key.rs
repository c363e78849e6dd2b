//! Keys of the keyspace: Strings, and Hashes of one field.

use std::collections::BTreeMap;

use super::UnixMs;
use super::context::Context;
use super::event::Event;
use super::kinds::{Mode, ValueType};
use super::module::Module;
use super::string::StringRef;
use super::ticket::{BlockedClient, Ticket};
use super::world::{self, Entry, Value, World};

/// An open key. What was read from it ends before the next write to it.
pub struct Key<'k, 'c, M> {
    ctx: &'k mut Context<'c, M>,
    name: StringRef<'k>,
    /// The bytes of a String, so that they can be lent.
    string: Vec<u8>,
}

impl<'c, M> Context<'c, M> {
    /// Opens a key of the selected database. An expired one is deleted.
    pub fn open<'k>(&'k mut self, name: StringRef<'k>, _mode: Mode) -> Key<'k, 'c, M> {
        let mut key = Key { ctx: self, name, string: Vec::new() };
        let is_over = |entry: &Entry, now: UnixMs| entry.expiry.is_some_and(|end| now > end);
        key.world(|world, place| {
            if world.keys.get(&place).is_some_and(|entry| is_over(entry, world.now_ms)) {
                world.keys.remove(&place);
                world.replicated.push(vec![b"DEL".to_vec(), place.1]);
            }
        });
        key.look();
        key
    }
}

impl<'k, 'c, M> Key<'k, 'c, M> {
    pub fn ctx(&self) -> &Context<'c, M> {
        self.ctx
    }

    pub fn name(&self) -> StringRef<'k> {
        self.name
    }

    pub fn is_empty(&self) -> bool {
        self.value_type() == ValueType::Empty
    }

    pub fn value_type(&self) -> ValueType {
        self.entry(|entry| match entry.map(|entry| &entry.value) {
            None => ValueType::Empty,
            Some(Value::String(_)) => ValueType::String,
            Some(Value::Hash(_)) => ValueType::Hash,
        })
    }

    /// When the key expires; `None`: never, or it is empty.
    pub fn expiry(&self) -> Option<UnixMs> {
        self.entry(|entry| entry.and_then(|entry| entry.expiry))
    }

    /// The same for a key that is known to hold a value.
    pub fn expiry_of_value(&self) -> Option<UnixMs> {
        self.expiry()
    }

    /// The bytes of a String; empty for anything else.
    pub fn string(&self) -> &[u8] {
        &self.string
    }

    /// Makes the key a String, whatever it was, with this expiry and no other.
    pub fn set_string(&mut self, value: StringRef<'_>, expiry: Option<UnixMs>) {
        let value = Value::String(value.bytes().to_vec());
        self.world(|world, place| world.keys.insert(place, Entry { value, expiry }));
        self.look();
    }

    /// Sets a field of a Hash; an empty key becomes one. Nothing happens to a key that holds anything else.
    pub fn set_field(&mut self, field: StringRef<'_>, value: StringRef<'_>) {
        self.world(|world, place| {
            let made = || Entry { value: Value::Hash(BTreeMap::new()), expiry: None };
            if let Value::Hash(fields) = &mut world.keys.entry(place).or_insert_with(made).value {
                fields.insert(field.bytes().to_vec(), value.bytes().to_vec());
            }
        });
    }

    /// Sets the expiry of an existing key.
    pub fn set_expiry(&mut self, at: UnixMs) {
        self.world(|world, place| world.keys.get_mut(&place).map(|entry| entry.expiry = Some(at)));
    }

    /// Empties the key.
    pub fn delete(&mut self) {
        self.world(|world, place| world.keys.remove(&place));
        self.look();
    }

    /// Reads the only field of a Hash and its value. `None` for a Hash with more fields, and for anything else. The name of
    /// the field that is `likely` is given as `None`.
    pub fn only_field<R>(&self, likely: Option<StringRef<'_>>, read: impl Fn(Option<&[u8]>, &[u8]) -> R) -> Option<R> {
        self.entry(|entry| match entry.map(|entry| &entry.value) {
            Some(Value::Hash(fields)) if fields.len() == 1 => fields.first_key_value().map(|(field, value)| {
                let is_likely = likely.is_some_and(|likely| likely.bytes() == field.as_slice());
                read((!is_likely).then_some(field), value)
            }),
            _ => None,
        })
    }

    /// Tells WATCH and client-side caches that the key has changed, and listeners how: there are none.
    pub fn signal(&mut self, _events: &[Event]) {}

    /// `SET key value [PXAT expiry]`, the expiry as digits.
    pub fn replicate_set(&mut self, value: StringRef<'_>, expiry: Option<&[u8]>) {
        let pxat = expiry.map(|digits| [b"PXAT", digits]).into_iter().flatten();
        self.replicate("SET", [value.bytes()].into_iter().chain(pxat));
    }

    /// `HSET key field value`.
    pub fn replicate_hset(&mut self, field: StringRef<'_>, value: StringRef<'_>) {
        self.replicate("HSET", [field.bytes(), value.bytes()].into_iter());
    }

    /// `PEXPIREAT key expiry`, the expiry as digits.
    pub fn replicate_pexpireat(&mut self, expiry: &[u8]) {
        self.replicate("PEXPIREAT", [expiry].into_iter());
    }

    /// `DEL key`.
    pub fn replicate_del(&mut self) {
        self.replicate("DEL", [].into_iter());
    }

    fn replicate<'w>(&mut self, command: &str, words: impl Iterator<Item = &'w [u8]>) {
        let mut line = vec![command.as_bytes().to_vec(), self.name.bytes().to_vec()];
        line.extend(words.map(<[u8]>::to_vec));
        world::with(|world| world.replicated.push(line));
    }

    fn place(&self) -> (i32, Vec<u8>) {
        (self.ctx.db(), self.name.bytes().to_vec())
    }

    fn world<R>(&mut self, body: impl FnOnce(&mut World, (i32, Vec<u8>)) -> R) -> R {
        let place = self.place();
        world::with(|world| body(world, place))
    }

    fn entry<R>(&self, body: impl FnOnce(Option<&Entry>) -> R) -> R {
        let place = self.place();
        world::with(|world| body(world.keys.get(&place)))
    }

    fn look(&mut self) {
        self.string = self.entry(|entry| match entry.map(|entry| &entry.value) {
            Some(Value::String(bytes)) => bytes.clone(),
            _ => Vec::new(),
        });
    }
}

impl<M: Module> Key<'_, '_, M> {
    /// Blocks the client whose command this is, until [`unblock`](super::unblock).
    pub fn block(&mut self, ticket: Ticket) -> Option<BlockedClient> {
        let client = self.ctx.client_id();
        world::with(|world| world.blocked.insert(ticket, client));
        Some(BlockedClient { answered: false })
    }
}
