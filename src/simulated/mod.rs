//! A simulated server with the surface of the layer `server`: the module above it cannot tell them apart.
//!
//! There are as many nodes as one asks for, each with its keyspace, its clock and its module's state, all on the thread
//! that drives them ([`Node`]). Nothing here runs by itself, and there is no unsafe code: what this server does wrong, it
//! does in plain sight.

#![forbid(unsafe_code)]

#[path = "../server/command.rs"]
mod command;
mod context;
mod event;
mod handler;
mod key;
#[path = "../server/kinds.rs"]
mod kinds;
mod main_thread;
#[path = "../server/module.rs"]
mod module;
mod node;
mod setting;
mod string;
mod ticket;
mod world;

pub use command::{Access, Argument, Command, Keys, Shape};
pub use context::{Context, ContextFlags, Replier, listen, unblock};
pub use event::{Event, EventName};
pub use handler::{CommandHandler, RunCommand, handler};
pub use key::Key;
pub use kinds::{Mode, Probe, Slot, ValueType};
pub use main_thread::MainThread;
pub use module::Module;
pub use node::Node;
pub use setting::Setting;
pub use string::{Arguments, OwnedString, StringRef};
pub use ticket::{BlockedClient, Ticket};
pub use world::{Reply, fire, fire_at, now_ms, now_us, steady_ms};

pub use crate::module_state;

/// A point on the simulated wall clock, in milliseconds since the Unix epoch.
pub type UnixMs = i64;

/// The server's number for a connection.
pub type ClientId = i64;
