//! A safe interface to the module API of Redis and Valkey: commands, keys, strings, replies, replication, blocked
//! clients, shard channels, a timer, events, settings and INFO.
//!
//! All unsafe code of the module is here, and nothing here knows what a lock is.
//!
//! The server calls a module on its main thread only, and a call into the server may call back before it returns. So a
//! module's state is lent to closures ([`MainThread::with`]), which must not call anything here that may call back.
//! Everything that may call back or write takes its [`Context`] by `&mut`. A context is not `Copy`, a [`Key`] borrows
//! it, and what was read from a key cannot outlive the next write to it.
//!
//! The trait [`Module`] lists everything that a server can do to a module. Differences between servers are handled here
//! and hidden from the layer above: when the reply of a blocked client is made ([`blocked`](BlockedClient)), which
//! functions there are (`api`), what a module may write outside of a command ([`Slot`]), and where a message would land
//! inside a reply ([`may_publish`]).

#![allow(unsafe_code)]

#[macro_use]
mod api;
mod acl_selectors;
mod acl_user;
mod allocator;
mod answer;
mod blocked;
mod blocked_client;
mod calls;
mod channel_rights;
mod channels;
mod clock;
mod cluster_slots;
mod command;
mod commands;
mod config;
mod context;
mod event;
mod events;
#[cfg(feature = "failpoints")]
mod failpoints;
mod handler;
mod hash_slot;
mod info;
mod key;
mod kinds;
mod known;
mod latency;
mod listeners;
mod loading;
mod main_thread;
mod module;
mod panics;
mod permission;
mod replication;
mod reply;
mod server_info;
mod setting;
mod settings;
mod sorted_set;
mod string;
mod subscriber_cache;
mod timer;
mod unloading;

pub use blocked::unblock;
pub use blocked_client::{BlockedClient, BlockedClientId};
pub use channels::{has_subscriber, is_in_cluster, may_publish, publish, subscribers};
pub use clock::{monotonic_ms, now_ms, now_us};
pub use cluster_slots::{ClusterSlots, SlotState};
pub use command::{Access, Argument, Command, Keys, Shape};
pub use commands::{RunCommand, handler, has_own_acl_categories};
pub use config::server_setting;
pub use context::{Context, ContextFlags};
pub use event::{Event, EventName};
pub use events::{subscribe, subscribe_to_roles, subscribe_to_sorted_sets};
pub use handler::CommandHandler;
pub use hash_slot::hash_slot;
pub use key::Key;
pub use kinds::{Mode, Probe, Slot, ValueType};
pub use latency::Stopwatch;
pub use loading::{load, unload};
pub use main_thread::MainThread;
pub use module::Module;
pub use reply::Replier;
pub use setting::Setting;
pub use string::{Arguments, OwnedString, StringRef};
pub use timer::{run_timer_soon, set_timer};

pub use crate::{entry_points, module_state};
pub use redis_module::raw::{RedisModuleCtx as RawContext, RedisModuleString as RawString};

/// A point in time on the server's wall clock, in milliseconds since the Unix epoch.
pub type UnixMs = i64;

/// The server's number for a connection, as shown by `CLIENT ID`.
pub type ClientId = i64;
