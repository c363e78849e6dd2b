//! Who takes part: each package, and this module by raw commands of the same language's client.

use std::env;
use std::process::Command;

use clap::ValueEnum;
use support::{python, repository};

/// A script in bench/peers, or a worker of this very program.
pub enum Program {
    Python(&'static str),
    Node(&'static str),
    Rust(RustPeer),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RustPeer {
    Rslock,
    Module,
}

pub struct Peer {
    /// The version follows.
    pub label: &'static str,
    pub program: Program,
    pub kind: Kind,
}

/// What a peer is to this project.
pub enum Kind {
    /// Another's package.
    Other,
    /// The module, by raw commands that block.
    Commands,
    /// The package of this project, which waits for messages.
    Package,
}

pub const PEERS: [Peer; 9] = [
    package("redis-py Lock", Program::Python("redis_py.py")),
    package("python-redis-lock", Program::Python("python_redis_lock.py")),
    module("redis-lock by redis-py", Program::Python("module.py")),
    Peer { label: "redis-lock-client by redis-py", program: Program::Python("package.py"), kind: Kind::Package },
    package("redis-semaphore", Program::Node("redis-semaphore.mjs")),
    package("redlock (npm)", Program::Node("redlock.mjs")),
    module("redis-lock by ioredis", Program::Node("module.mjs")),
    package("rslock", Program::Rust(RustPeer::Rslock)),
    module("redis-lock by the redis crate", Program::Rust(RustPeer::Module)),
];

/// For a permit of a semaphore.
pub const PERMIT_PEERS: [Peer; 2] = [
    package("redis-semaphore", Program::Node("redis-semaphore-permit.mjs")),
    module("redis-lock by ioredis", Program::Node("module-permit.mjs")),
];

const fn package(label: &'static str, program: Program) -> Peer {
    Peer { label, program, kind: Kind::Other }
}

const fn module(label: &'static str, program: Program) -> Peer {
    Peer { label, program, kind: Kind::Commands }
}

impl Program {
    /// To be given what every worker is given.
    pub fn command(&self) -> Command {
        let scripts = repository().join("bench/peers");
        match self {
            Self::Python(script) => {
                let mut command = Command::new(python::interpreter());
                command.env("PYTHONDONTWRITEBYTECODE", "1").arg(scripts.join(script));
                command
            }
            Self::Node(script) => {
                let packages = scripts.join("node_modules");
                assert!(packages.exists(), "no bench/peers/node_modules: run `scripts/setup bench` first");
                let mut command = Command::new("node");
                command.arg(scripts.join(script));
                command
            }
            Self::Rust(peer) => {
                let mut command = Command::new(env::current_exe().expect("the path of this program"));
                let name = peer.to_possible_value().expect("a peer with a name");
                command.args(["worker", name.get_name()]);
                command
            }
        }
    }
}
