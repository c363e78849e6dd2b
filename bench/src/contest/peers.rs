//! The packages that are compared, and this module by the client of the same language.

use std::env;
use std::process::Command;

use support::{Client, python, repository};

use crate::protocols::{LOCK_BLOCK, Protocol, SET_NX_POLL, SET_NX_SCRIPT, compare_and_delete};

/// The language of a worker, and the name by which it knows what to run. The scripts are in bench/peers.
#[derive(Clone, Copy)]
pub enum Program {
    Python(&'static str),
    Node(&'static str),
    /// A worker of this program.
    Rust(&'static str),
}

#[derive(Clone, Copy)]
pub struct Peer {
    /// The version follows it.
    pub label: &'static str,
    pub program: Program,
    pub kind: Kind,
}

/// What a peer is to this project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Other,
    /// The module, by commands that block.
    Commands,
    /// The package of this project, which waits for messages.
    Package,
}

const fn peer(label: &'static str, program: Program, kind: Kind) -> Peer {
    Peer { label, program, kind }
}

const REDIS_PY: Peer = peer("redis-py Lock", Program::Python("redis-py"), Kind::Other);
const PYTHON_REDIS_LOCK: Peer = peer("python-redis-lock", Program::Python("python-redis-lock"), Kind::Other);
const BY_REDIS_PY: Peer = peer("redis-lock by redis-py", Program::Python("commands"), Kind::Commands);
const PACKAGE: Peer = peer("redis-lock-client by redis-py", Program::Python("redis-lock-client"), Kind::Package);
const REDIS_SEMAPHORE: Peer = peer("redis-semaphore", Program::Node("redis-semaphore"), Kind::Other);
const REDLOCK: Peer = peer("redlock (npm)", Program::Node("redlock"), Kind::Other);
const REDLOCK_UNIVERSAL: Peer = peer("redlock-universal", Program::Node("redlock-universal"), Kind::Other);
const BY_IOREDIS: Peer = peer("redis-lock by ioredis", Program::Node("commands"), Kind::Commands);
const BY_RUST: Peer = by_rust("redis-lock by a client in Rust", Protocol::Plain(LOCK_BLOCK), Kind::Commands);

const fn by_rust(label: &'static str, protocol: Protocol, kind: Kind) -> Peer {
    peer(label, Program::Rust(protocol.name()), kind)
}

/// For one lock, which all clients want.
pub fn one_lock() -> Vec<Peer> {
    vec![
        REDIS_PY,
        PYTHON_REDIS_LOCK,
        BY_REDIS_PY,
        PACKAGE,
        REDIS_SEMAPHORE,
        REDLOCK,
        REDLOCK_UNIVERSAL,
        BY_IOREDIS,
        BY_RUST,
    ]
}

/// For a semaphore.
pub fn two_permits() -> Vec<Peer> {
    vec![REDIS_SEMAPHORE, BY_IOREDIS]
}

/// For many locks of different popularity.
pub fn skewed(client: &mut Client) -> Vec<Peer> {
    let set_nx = compare_and_delete(client).unwrap_or(SET_NX_POLL);
    vec![
        BY_RUST,
        by_rust(set_nx.name, Protocol::Plain(set_nx), Kind::Other),
        by_rust("SET NX + EVALSHA, poll 100 ms", Protocol::Plain(SET_NX_SCRIPT), Kind::Other),
        by_rust("Redisson's protocol", Protocol::Redisson, Kind::Other),
        BY_REDIS_PY,
        PACKAGE,
        REDIS_PY,
        PYTHON_REDIS_LOCK,
        BY_IOREDIS,
        REDLOCK_UNIVERSAL,
        REDIS_SEMAPHORE,
    ]
}

impl Program {
    /// The command that starts a worker, without the worker's arguments after the name.
    pub fn command(self) -> Command {
        let scripts = repository().join("bench/peers");
        let (mut command, name) = match self {
            Self::Python(name) => {
                let mut command = Command::new(python::interpreter());
                command.env("PYTHONDONTWRITEBYTECODE", "1").arg(scripts.join("worker.py"));
                (command, name)
            }
            Self::Node(name) => {
                let packages = scripts.join("node_modules");
                assert!(packages.exists(), "no bench/peers/node_modules: run `scripts/setup bench` first");
                let mut command = Command::new("node");
                command.arg(scripts.join("worker.mjs"));
                (command, name)
            }
            Self::Rust(name) => {
                let mut command = Command::new(env::current_exe().expect("the path of this program"));
                command.arg("worker");
                (command, name)
            }
        };
        command.arg(name);
        command
    }
}
