//! Histories: what happens to simulated servers, step by step.

use std::fmt;

use redis_lock::core::MAX_BATCH;
use redis_lock::server::{ServerKind, WriteFence};

use crate::request::{Channel, Identity, LockNumber, Request, name_of};

/// The number of one of the clients.
pub type Slot = u8;

/// How many clients there are.
pub const CLIENTS: Slot = 17;

/// How many locks there are in each database.
pub const LOCKS: LockNumber = 3;

/// How many channels there are.
pub const CHANNELS: Channel = 3;

/// Everything that a seed decides.
#[derive(Clone)]
pub struct History {
    pub kind: ServerKind,
    pub setting: Setting,
    /// The number of queue entries of one lock that are granted it in one step: with few of them, a queue is a long one soon.
    pub batch: usize,
    pub steps: Vec<Step>,
}

/// What the module grants in one step by itself.
pub const BATCH: usize = MAX_BATCH;

/// Where a history takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// One server.
    Alone,
    /// A master and a replica that may take its place.
    Replicated,
    /// A node of a cluster.
    Cluster,
}

/// One thing that happens. What clients send arrives at once; the server's loop turns when the history says so, or when
/// time passes.
#[derive(Clone, Debug)]
pub enum Step {
    /// A client sends a LOCK command.
    Ask { client: Slot, request: Request, way: Way },
    /// A client sends another command.
    External { client: Slot, command: ExternalCommand },
    /// A client sends so many requests for shares of a lock, by as many tokens, that wait for messages.
    Crowd { client: Slot, lock: LockNumber, count: u8, lease: i64 },
    /// A client closes its connection.
    HangUp(Slot),
    /// So many clients from one on lose their connections at once.
    CutOff { first: Slot, count: u8 },
    /// A client has the server close another one's connection.
    Kill { client: Slot, victim: Victim },
    /// A client has the server let another one go.
    Unblock { client: Slot, victim: Victim, with_error: bool },
    /// A client sends QUIT behind what it has sent.
    Quit(Slot),
    /// A client subscribes to a channel, in RESP3, with which it can go on to send commands.
    Subscribe { client: Slot, channel: Channel },
    /// A client does not listen on a channel any more.
    Unsubscribe { client: Slot, channel: Channel },
    /// A client selects a database.
    Select { client: Slot, db: u8 },
    /// The loop turns once.
    Turn,
    /// Milliseconds pass, in which the loop turns when something is due.
    Pass(u16),
    /// The server stands still for so many milliseconds, while something may befall it.
    Stall { ms: u16, change: Change },
    /// The wall clock is set.
    SetClock(i16),
    /// The server's own cycle finds some keys that have expired.
    Expire(u8),
    /// CLIENT PAUSE.
    Pause(u16),
    /// The server must refuse writes, or need not any more.
    Fence(Option<WriteFence>),
    /// The replica hears so many more units.
    Replicate(u8),
    /// The replica takes over: all that it has not heard is lost, or, if it is planned, nothing.
    FailOver { planned: bool },
    /// The server ends and begins again: with what its AOF says, or, without one, with nothing.
    Restart { has_log: bool },
    /// CONFIG gets a name that the module does not know.
    HideSettings,
    /// A setting is set.
    Configure { knob: Knob, value: u32 },
    /// The server evicts a lock that has a lease.
    Evict(LockNumber),
    /// The server is made a replica, and after so many milliseconds a master again.
    Demote(u16),
    /// A client sends two LOCK commands in one transaction.
    Together { client: Slot, requests: [Request; 2] },
    /// What befalls the slot of a lock.
    Slot { lock: LockNumber, fate: SlotFate },
    /// The cluster goes down, or up.
    ClusterDown(bool),
}

/// Whom another client has the server do something to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    Client(Slot),
    /// Who is first in line for the lock that most want.
    First,
}

/// A setting of the module, or one of the server that it asks for.
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

/// How a LOCK command comes to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Plain,
    Transaction,
    Script,
}

/// What happens to the world while a server stands still.
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

/// What a counter of fencing tokens is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// A number far ahead of the time.
    Ahead,
    /// The last number but one that a token may be, so that there is one more.
    AtItsEnd,
    /// The last integer.
    BehindItsEnd,
    /// A number that expires after so many milliseconds.
    Expiring(u16),
    /// No number.
    Text,
}

/// The score of a member of a Sorted Set that somebody else adds. What a fraction of a millisecond means among shares is left
/// open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// The time in so many milliseconds.
    In(i16),
    /// Infinite.
    Never,
}

/// What a client does to a lock's key that is no LOCK command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExternalCommand {
    Delete(LockNumber),
    Unlink(LockNumber),
    GetDel(LockNumber),
    /// Takes the field of an owner out.
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
    /// Something else in the place of the counter of fencing tokens.
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
    /// Deletes several in one transaction.
    DeleteAll,
}

impl Knob {
    /// Its name.
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
    /// Whether locks may come to be under other names than they were taken by.
    pub fn moves_locks(&self) -> bool {
        matches!(self, Self::Rename(..) | Self::Copy(..) | Self::Move(..) | Self::SwapDb)
    }

    /// The commands as lines, by a clock that shows this time.
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
    /// One in which nothing happens.
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
