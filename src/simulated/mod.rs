//! A simulated server with the interface of the layer `server`. The layers above work the same on both.
//!
//! Tests and tools create any number of nodes ([`Node`]). Each node has its own keyspace, clock and state of the module. All
//! nodes run on the thread that controls them, and nothing runs by itself. There is no unsafe code.

#![forbid(unsafe_code)]

mod blocked;
mod blocked_client;
mod calls;
mod channels;
mod client;
mod cluster;
#[path = "../server/cluster_slots.rs"]
mod cluster_slots;
#[path = "../server/command.rs"]
mod command;
mod command_handler;
mod connection;
mod context;
mod crash;
mod event;
mod event_log;
mod expiry;
mod faults;
mod handler;
mod hooks_of_module;
mod key;
mod keyspace;
mod kind;
#[path = "../server/kinds.rs"]
mod kinds;
mod latency;
#[path = "../server/lending.rs"]
mod lending;
mod main_thread;
mod members;
#[path = "../server/module.rs"]
mod module;
mod module_hooks;
mod native;
mod node;
mod node_state;
mod notify;
mod process;
mod refusal;
mod reply;
mod setting;
mod sorted_set;
mod stream;
mod string;
mod subscriptions;
mod write_blockers;

pub use blocked::unblock;
pub use blocked_client::{BlockedClient, BlockedClientId};
pub use channels::{has_subscriber, may_publish, publish, subscribers};
pub use cluster::{hash_slot, is_in_cluster, slot_of};
pub use cluster_slots::{ClusterSlots, SlotState};
pub use command::{Access, Argument, Command, Keys, Shape};
pub use command_handler::CommandHandler;
pub use context::{Context, ContextFlags, Replier, has_own_acl_categories, is_paused, server_setting};
pub use event::Event;
pub use event_log::{LoggedEvent, Seen, Tag, Writer};
pub use faults::{Fault, set_fault};
pub use handler::{RunCommand, handler};
pub use key::Key;
pub use keyspace::{Entry, Keyspace, Value};
pub use kind::ServerKind;
pub use kinds::{Mode, Probe, Slot, ValueType};
pub use latency::Stopwatch;
pub use main_thread::{MainThread, Server};
pub use members::{Members, Score};
pub use module::Module;
pub use node::Node;
pub use node_state::{monotonic_ms, now_ms, now_us, run_timer_soon, set_timer};
pub use reply::Reply;
pub use setting::Setting;
pub use stream::{Effect, Unit};
pub use string::{Arguments, OwnedString, StringRef};
pub use subscriptions::{subscribe, subscribe_to_roles, subscribe_to_sorted_sets};
pub use write_blockers::{Unnoticed, WriteFence};

pub use crate::module_state;

/// A time of the simulated wall clock, in milliseconds since the Unix epoch.
pub type UnixMs = i64;

/// The server's number for a connection.
pub type ClientId = i64;

#[cfg(test)]
#[path = "../server/hash_slot.rs"]
mod hash_slot;
