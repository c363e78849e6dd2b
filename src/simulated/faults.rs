//! Faults of a server: what it can do wrong, so that a hunt can show that the checker of the simulator notices it.
//!
//! A thread has one fault at most, which all its nodes share. Without one, nothing here has an effect.

use std::cell::Cell;
use std::fmt;

thread_local! {
    static CHOSEN: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// Defines [`Fault`]: each line has the name, what the server does wrong, and the words that the checker must say.
macro_rules! faults {
    ($($name:ident $what:literal says $sign:literal)*) => {
        /// Something that a server does wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $(#[doc = $what] $name,)*
        }

        impl Fault {
            /// Every fault.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns what the server does wrong, in words.
            pub fn what(self) -> &'static str {
                match self {
                    $(Self::$name => $what,)*
                }
            }

            /// Returns words of the message with which the checker must find the fault.
            pub fn sign(self) -> &'static str {
                match self {
                    $(Self::$name => $sign,)*
                }
            }
        }
    };
}

faults! {
    // Events.
    DelEventLost "the event `del` is not sent" says "free since"
    DelEventLate "the event `del` is sent one iteration of the event loop late" says "has ended, and"
    ExpiredEventLost "the event `expired` is not sent" says "free since"
    ExpiredEventNamedDel "the event `expired` is sent under the name `del`" says "gets the lock of an open session"
    EvictedEventLost "the event `evicted` is not sent" says "free since"
    ExpireEventLost "the event `expire` is not sent" says "free since"
    PersistEventNamedDel "the event `persist` is sent under the name `del`" says "has ended, and Held"
    RestoreEventLost "the event `restore` is not sent" says "free since"
    RenameFromEventLost "the event `rename_from` is not sent" says "free since"
    MemberEventsLost "no event is sent when a member of a Sorted Set is removed" says "free since"
    FlushNotAnnounced "the flush of a database is not announced" says "free since"
    SwapNotAnnounced "the exchange of two databases is not announced" says "free since"
    PromotionNotAnnounced "the promotion to a master is not announced" says "INFO says that grants are suspended for 0 ms"
    SettingNotAnnounced "a change of the module's settings is not announced" says "INFO says that grants are suspended for"
    CloseNotAnnounced "a closed connection is not announced" says "held by a connection that is closed"
    // Blocked clients.
    LeftNotCalled "the module does not learn that a blocked client has disconnected" says "waits without a request"
    LeftSaysReplied "a blocked client that has disconnected is said to have had its reply" says "held by a client that never had the reply"
    FreedNotCalled "the module does not learn that a blocked client is freed" says "everybody has left"
    FreedSaysReplied "a blocked client that is freed is said to have had its reply" says "held by a client that never had the reply"
    DisconnectedSaysNotReplied "a blocked client that has disconnected is said to have had no reply when it is freed"
        says "the lock is taken from"
    UnblockIgnored "the module unblocks a client, and nothing happens" says "was let go, and is not answered"
    ReplySentTwice "a blocked client has its reply twice" says "is answered twice"
    ReplyLost "a blocked client has no reply" says "held by a client that never had the reply"
    OtherClientUnblocked "CLIENT UNBLOCK ends the wait of another client" says "nil before the time is up"
    BlockedNotRedirected "a slot is lost, and the clients that are blocked in it stay blocked" says "free since"
    // What the module is shown.
    ReplicaHidden "a replica looks like a master" says "a write on a replica"
    PauseHidden "a pause of writes is not shown" says "a write in a pause"
    FenceHidden "a probe does not show that the server refuses writes" says "a write where the server would refuse a client's"
    SlotHidden "a slot of another node looks like one of this node" says "a write to a key of another node"
    MigrationHidden "a key that is missing in a slot that migrates looks like a free one"
        says "a write to a key that may be at another node already"
    SlotListOld "the list of slots is that of the start" says "is lost, and its client is not notified"
    ScriptHidden "a script looks like a client" says "is answered"
    TransactionHidden "a transaction looks like a single command" says "a client is blocked in a transaction"
    StartHidden "a server that starts looks like one that has been running"
        says "INFO says that grants are suspended for 0 ms"
    SettingOld "a setting of the server is shown with its default value" says "INFO says that grants are suspended for"
    // Time.
    MonotonicClockStands "the monotonic clock stands still"
        says "a write before the server could see what happened while it stood still"
    MicrosecondsStand "the clock shows no microseconds, and no progress by them" says "the token after"
    CronStops "the cron does not run" says "free since"
    TimerLate "the timer runs 5 ms late" says "the time of request"
    TimerSoonIgnored "the timer does not run in the same iteration of the event loop" says "free since"
    // Keys.
    ExpiredKeyShown "an expired key is opened as if it were there" says "free since"
    SetLosesExpiry "a string is written without its expiry" says "is granted, with a lease to"
    SelectIgnored "the module selects a database, and nothing happens" says "of database 1: free since"
    WatchersNotTold "clients that watch a key do not learn of a change" says "a change that was not signalled"
    CallIgnored "a command that the module calls does nothing" says "others are not woken"
    // Replication.
    DelNotReplicated "`DEL` of the module is not replicated" says "the AOF"
    PexpireatNotReplicated "`PEXPIREAT` of the module is not replicated" says "the AOF"
    ZremNotReplicated "`ZREM` of the module is not replicated" says "the AOF"
    ExpiryNotReplicated "the end of an expired key is not replicated" says "the AOF"
    EffectsReversed "effects are replicated in reverse order" says "the AOF"
    EffectsInDatabaseZero "effects are replicated for database 0" says "the AOF"
    // Messages.
    PublishCountsNone "a message that has subscribers is said to have none" says "and it is not so"
    PublishCountsOneMore "a message is said to have one subscriber more" says "overtakes"
    SubscriberInvented "a channel without subscribers is said to have one" says "is answered Status(\"WAITING\")"
}

impl Fault {
    /// Returns the fault with this name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|fault| fault.to_string() == name).copied()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Gives the servers of this thread a fault, or takes it away.
pub fn set_fault(fault: Option<Fault>) {
    CHOSEN.set(fault);
}

/// Returns whether the servers of this thread have this fault.
pub(super) fn has(fault: Fault) -> bool {
    CHOSEN.get() == Some(fault)
}

/// Returns the name under which an event is sent, or `None` if it is not sent.
pub(super) fn sent_event(event: &'static str) -> Option<&'static str> {
    let lost = match CHOSEN.get() {
        Some(Fault::DelEventLost) => "del",
        Some(Fault::ExpiredEventLost) => "expired",
        Some(Fault::EvictedEventLost) => "evicted",
        Some(Fault::ExpireEventLost) => "expire",
        Some(Fault::RestoreEventLost) => "restore",
        Some(Fault::RenameFromEventLost) => "rename_from",
        Some(Fault::ExpiredEventNamedDel) if event == "expired" => return Some("del"),
        Some(Fault::PersistEventNamedDel) if event == "persist" => return Some("del"),
        _ => return Some(event),
    };
    (event != lost).then_some(event)
}
