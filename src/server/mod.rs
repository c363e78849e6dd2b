//! A safe interface to the module API of Redis and Valkey: commands, keys, strings, replies, replication, blocked
//! clients, shard channels, a timer, events, settings and INFO.
//!
//! This layer has all unsafe code of the module, and no code about locks. Another module can be written on it.
//!
//! The server calls a module on its main thread only, and a call into the server may call back before it returns. So a
//! module's state is lent to closures ([`MainThread::with`]), in which no function can be called that takes the right to use
//! the server ([`Server`]), a [`Context`] or a [`Key`] by `&mut`. A context is not `Copy`, a [`Key`] borrows it, and bytes
//! that were read from a key cannot outlive the next write to it.
//!
//! The trait [`Module`] lists every call that a server makes to a module. The layer hides how servers differ: when the reply
//! to a blocked client is made ([`BlockedClient`]), which functions the server has (`api`), what a module may write outside of
//! a command ([`Slot`]), and when a message would become a part of a reply ([`may_publish`]). Its own state is in `state`.

#![expect(unsafe_code, reason = "the module API is in C")]

#[macro_use]
mod api;
mod acl;
mod allocator;
mod blocked;
mod calls;
mod channels;
mod clock;
mod cluster_slots;
mod command;
mod commands;
mod context;
mod events;
#[cfg(feature = "failpoints")]
mod failpoints;
mod hash_slot;
mod info;
mod key;
mod kinds;
mod latency;
mod lending;
mod loading;
mod main_thread;
mod module;
mod panics;
mod permission;
mod reply;
mod right;
mod settings;
mod state;
mod string;
mod timer;

pub use blocked::{BlockedClient, BlockedClientId, unblock};
pub use channels::{has_subscriber, is_in_cluster, may_publish, publish, subscribers};
pub use clock::{monotonic_ms, now_ms, now_us};
pub use cluster_slots::{ClusterSlots, SlotState};
pub use command::{Access, Argument, Command, Keys, Shape};
pub use commands::{RunCommand, handler, has_own_acl_categories};
pub use context::{Context, ContextFlags};
pub use events::{Event, subscribe, subscribe_to_roles, subscribe_to_sorted_sets};
pub use hash_slot::hash_slot;
pub use key::Key;
pub use kinds::{Mode, Probe, Slot, ValueType};
pub use latency::Stopwatch;
pub use loading::{load, unload};
pub use main_thread::MainThread;
pub use module::Module;
pub use permission::is_paused;
pub use reply::Replier;
pub use right::Server;
pub use settings::{Setting, server_setting};
pub use string::{Arguments, OwnedString, StringRef};
pub use timer::{run_timer_soon, set_timer};

pub use crate::{entry_points, module_state};
use redis_module::raw::RedisModuleCmdFunc;
pub use redis_module::raw::{RedisModuleCtx as RawContext, RedisModuleString as RawString};

/// A point in time on the server's wall clock, in milliseconds since the Unix epoch.
pub type UnixMs = i64;

/// The function by which the server calls a command. [`handler`] creates it.
#[derive(Clone, Copy)]
pub struct CommandHandler(RedisModuleCmdFunc);

/// The server's number for a connection, as shown by `CLIENT ID`.
pub type ClientId = i64;
