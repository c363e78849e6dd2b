//! Histories: what happens to simulated servers, step by step.

use std::fmt;

use redis_lock::core::limits::MAX_BATCH;
use redis_lock::server::{ServerKind, WriteFence};

use crate::request::{Channel, Identity, LockNumber, Request, name_of};

/// The number of one of the clients.
pub type Slot = u8;

/// The number of clients.
pub const CLIENTS: Slot = 17;

/// The number of locks in each database.
pub const LOCKS: LockNumber = 3;

/// The number of channels.
pub const CHANNELS: Channel = 3;

/// Everything that a seed determines.
#[derive(Clone)]
pub struct History {
    pub kind: ServerKind,
    pub setting: Setting,
    /// The greatest number of queue entries that one step grants a lock to. With a small number, queues become long.
    pub batch: usize,
    pub steps: Vec<Step>,
}

/// The batch of the module by default.
pub const BATCH: usize = MAX_BATCH;

/// The servers of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// One server.
    Alone,
    /// A master, and a replica that may be promoted.
    Replicated,
    /// A node of a cluster.
    Cluster,
}

/// One event. The commands of clients arrive immediately. The event loop runs when the history says so, or when time
/// passes.
#[derive(Clone, Debug)]
pub enum Step {
    /// A client sends a LOCK command.
    Ask { client: Slot, request: Request, way: Way },
    /// A client sends another command.
    External { client: Slot, command: ExternalCommand },
    /// A client sends `count` requests for shares of a lock, each with its own token. The requests wait for messages.
    Crowd { client: Slot, lock: LockNumber, count: u8, lease: i64 },
    /// A client closes its connection.
    HangUp(Slot),
    /// `count` clients, beginning with `first`, lose their connections at the same time.
    CutOff { first: Slot, count: u8 },
    /// A client closes the connection of another client with CLIENT KILL.
    Kill { client: Slot, victim: Victim },
    /// A client ends the wait of another client with CLIENT UNBLOCK.
    Unblock { client: Slot, victim: Victim, with_error: bool },
    /// A client sends QUIT after its other commands.
    Quit(Slot),
    /// A client subscribes to a channel. It uses RESP3, so it can still send commands.
    Subscribe { client: Slot, channel: Channel },
    /// A client unsubscribes from a channel.
    Unsubscribe { client: Slot, channel: Channel },
    /// A client selects a database.
    Select { client: Slot, db: u8 },
    /// The event loop runs once.
    Turn,
    /// Milliseconds pass. The event loop runs when something is due.
    Pass(u16),
    /// The server stalls for `ms` milliseconds. Its state may change in that time.
    Stall { ms: u16, change: Change },
    /// The wall clock is set.
    SetClock(i16),
    /// The server's active expiry finds some expired keys.
    Expire(u8),
    /// CLIENT PAUSE.
    Pause(u16),
    /// The server must refuse writes, or need not any more.
    Fence(Option<WriteFence>),
    /// The replica receives this number of units.
    Replicate(u8),
    /// The replica is promoted. Units that it has not received are lost, unless the failover is planned.
    FailOver { planned: bool },
    /// The server stops and starts again, with the keys of its AOF or with none.
    Restart { has_log: bool },
    /// CONFIG gets a name that the module does not know.
    HideSettings,
    /// A setting changes.
    Configure { knob: Knob, value: u32 },
    /// The server evicts a lock that has a lease.
    Evict(LockNumber),
    /// The server becomes a replica, and after this number of milliseconds a master again.
    Demote(u16),
    /// A client sends two LOCK commands in one transaction.
    Together { client: Slot, requests: [Request; 2] },
    /// The slot of a lock leaves, migrates or returns.
    Slot { lock: LockNumber, fate: SlotFate },
    /// The cluster goes down, or up.
    ClusterDown(bool),
}

/// The client that another client kills or unblocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    Client(Slot),
    /// The first waiter of the lock that most clients want.
    First,
}

/// A setting of the module, or a setting of the server that the module reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    MaxWaiters,
    MaxBlockMs,
    RejoinGraceMs,
    MaxSessions,
    MaxLeaseMs,
    RecoveryMs,
    /// In seconds.
    MaxLag,
    /// 0 or 1.
    WakeForeign,
}

/// The way in which a LOCK command reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Plain,
    Transaction,
    Script,
}

/// The change of a server's state during a stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Nothing,
    NoReplicas,
    Replaced,
}

/// What happens to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotFate {
    Leaves,
    Migrates,
    Returns,
}

/// The new value of a counter of fencing tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// A number far above the current time in microseconds.
    Ahead,
    /// The last fencing token but one, so that one more can be drawn.
    AtItsEnd,
    /// The greatest integer.
    BehindItsEnd,
    /// A number that expires after this number of milliseconds.
    Expiring(u16),
    /// A value that is no number.
    Text,
}

/// The score of a member that an external command adds to a Sorted Set. It is a whole number of milliseconds, because
/// the contract does not say what a fraction means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// The current time plus this number of milliseconds.
    In(i16),
    /// Infinite.
    Never,
}

/// An external command on the key of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExternalCommand {
    Delete(LockNumber),
    Unlink(LockNumber),
    GetDel(LockNumber),
    /// Removes the field of an owner.
    TakeOut {
        lock: LockNumber,
        identity: Identity,
    },
    /// ZREM.
    RemoveShare {
        lock: LockNumber,
        identity: Identity,
    },
    /// ZPOPMIN.
    PopShare(LockNumber),
    /// ZADD.
    AddShare {
        lock: LockNumber,
        identity: Identity,
        score: Score,
    },
    /// SET with KEEPTTL.
    SetKeep {
        lock: LockNumber,
        identity: Identity,
    },
    Restore {
        lock: LockNumber,
        identity: Identity,
        lease: u16,
    },
    /// Overwrites the counter of fencing tokens.
    SetCounter {
        lock: LockNumber,
        value: Counter,
    },
    Set {
        lock: LockNumber,
        identity: Identity,
        lease: Option<u16>,
    },
    SetHash {
        lock: LockNumber,
        identity: Identity,
        holds: u8,
    },
    Push(LockNumber),
    Expire {
        lock: LockNumber,
        ms: i16,
    },
    Persist(LockNumber),
    Rename(LockNumber, LockNumber),
    Copy(LockNumber, LockNumber),
    Move(LockNumber, u8),
    FlushDb,
    FlushAll,
    SwapDb,
    Reload,
    /// Deletes all locks of the database in one transaction.
    DeleteAll,
}

impl Knob {
    /// Returns the name of the setting.
    pub fn name(self) -> &'static str {
        match self {
            Self::MaxWaiters => "lock.max-waiters",
            Self::MaxBlockMs => "lock.max-block-ms",
            Self::RejoinGraceMs => "lock.rejoin-grace-ms",
            Self::MaxSessions => "lock.max-sessions",
            Self::MaxLeaseMs => "lock.max-lease-ms",
            Self::RecoveryMs => "lock.recovery-ms",
            Self::MaxLag => "min-replicas-max-lag",
            Self::WakeForeign => "lock.wake-foreign",
        }
    }
}

impl ExternalCommand {
    /// Returns whether the command may move a lock to another key or database.
    pub fn moves_locks(&self) -> bool {
        matches!(self, Self::Rename(..) | Self::Copy(..) | Self::Move(..) | Self::SwapDb)
    }

    /// Returns the commands as lines. `now` is the current time of the clock.
    pub fn lines(&self, now: i64) -> Vec<String> {
        let one = |line: String| vec![line];
        let key = |lock: &LockNumber| name_of(*lock);
        match self {
            Self::Delete(lock) => one(format!("DEL {}", key(lock))),
            Self::Unlink(lock) => one(format!("UNLINK {}", key(lock))),
            Self::GetDel(lock) => one(format!("GETDEL {}", key(lock))),
            Self::TakeOut { lock, identity } => one(format!("HDEL {} t{identity}", key(lock))),
            Self::RemoveShare { lock, identity } => one(format!("ZREM {} t{identity}", key(lock))),
            Self::PopShare(lock) => one(format!("ZPOPMIN {}", key(lock))),
            Self::AddShare { lock, identity, score } => one(match score {
                Score::In(ms) => format!("ZADD {} {} t{identity}", key(lock), now + i64::from(*ms)),
                Score::Never => format!("ZADD {} inf t{identity}", key(lock)),
            }),
            Self::SetKeep { lock, identity } => one(format!("SET {} t{identity} KEEPTTL", key(lock))),
            Self::Restore { lock, identity, lease } => {
                one(format!("RESTORE {} {lease} t{identity} REPLACE", key(lock)))
            }
            Self::SetCounter { lock, value } => one(match value {
                Counter::Ahead => format!("SET counter{lock} 2000000000000000"),
                Counter::AtItsEnd => format!("SET counter{lock} {}", (1_i64 << 53) - 2),
                Counter::BehindItsEnd => format!("SET counter{lock} {}", i64::MAX),
                Counter::Expiring(ms) => format!("SET counter{lock} 7 PX {ms}"),
                Counter::Text => format!("SET counter{lock} x"),
            }),
            Self::Set { lock, identity, lease: Some(ms) } => one(format!("SET {} t{identity} PX {ms}", key(lock))),
            Self::Set { lock, identity, lease: None } => one(format!("SET {} t{identity}", key(lock))),
            Self::SetHash { lock, identity, holds } => one(format!("HSET {} t{identity} {holds}", key(lock))),
            Self::Push(lock) => one(format!("LPUSH {} x", key(lock))),
            Self::Expire { lock, ms } => one(format!("PEXPIRE {} {ms}", key(lock))),
            Self::Persist(lock) => one(format!("PERSIST {}", key(lock))),
            Self::Rename(from, to) => one(format!("RENAME {} {}", key(from), key(to))),
            Self::Copy(from, to) => one(format!("COPY {} {} REPLACE", key(from), key(to))),
            Self::Move(lock, db) => one(format!("MOVE {} {db}", key(lock))),
            Self::FlushDb => one("FLUSHDB".to_owned()),
            Self::FlushAll => one("FLUSHALL".to_owned()),
            Self::SwapDb => one("SWAPDB 0 1".to_owned()),
            Self::Reload => one("DEBUG RELOAD".to_owned()),
            Self::DeleteAll => {
                let deletes = (0..LOCKS).map(|lock| format!("DEL {}", name_of(lock)));
                ["MULTI".to_owned()].into_iter().chain(deletes).chain(["EXEC".to_owned()]).collect()
            }
        }
    }
}

impl History {
    /// Returns a history without steps.
    pub fn empty() -> Self {
        Self { kind: ServerKind::Redis70, setting: Setting::Alone, batch: BATCH, steps: Vec::new() }
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "on {:?}, {:?}, {} grants in a step", self.kind, self.setting, self.batch)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "  {step}"))
    }
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(client) => write!(f, "c{client}"),
            Self::First => write!(f, "who is first in line"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask { client, request, way: Way::Plain } => write!(f, "c{client}> {request}"),
            Self::Ask { client, request, way } => write!(f, "c{client}> {request} ({way:?})"),
            Self::External { client, command } => write!(f, "c{client}> {}", command.lines(0).join("; ")),
            Self::HangUp(client) => write!(f, "c{client} closes"),
            Self::Crowd { client, lock, count, lease } => {
                write!(f, "c{client}> {count} times LOCK.SHARE {} PX {lease} BLOCK 0 NOTIFY", name_of(*lock))
            }
            Self::CutOff { first, count } => write!(f, "c{first} and the next, {count} in all, close"),
            Self::Kill { client, victim } => write!(f, "c{client}> CLIENT KILL {victim}"),
            Self::Unblock { client, victim, with_error } => {
                write!(f, "c{client}> CLIENT UNBLOCK {victim} {}", if *with_error { "ERROR" } else { "TIMEOUT" })
            }
            Self::Together { client, requests: [one, other] } => write!(f, "c{client}> MULTI; {one}; {other}; EXEC"),
            Self::Configure { knob, value } => write!(f, "-- CONFIG SET {} {value}", knob.name()),
            Self::Quit(client) => write!(f, "c{client}> QUIT"),
            Self::Select { client, db } => write!(f, "c{client}> SELECT {db}"),
            Self::Turn => write!(f, "-- the loop turns"),
            Self::Pass(ms) => write!(f, "-- {ms} ms pass"),
            Self::Stall { ms, change } => write!(f, "-- the server stands still for {ms} ms: {change:?}"),
            other => write!(f, "-- {other:?}"),
        }
    }
}
