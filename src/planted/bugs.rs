//! All defects: number, name, and what is wrong.

/// Defines [`Bug`]. The numbers are in order, from 1.
macro_rules! bugs {
    ($($number:literal $name:ident $what:literal)*) => {
        /// A defect that can be chosen.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $(#[doc = $what] $name = $number - 1,)*
        }

        impl Bug {
            /// All defects, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// Says what is wrong.
            pub fn what(self) -> &'static str {
                match self {
                    $(Self::$name => $what,)*
                }
            }
        }
    };
}

bugs! {
    // What the server does while it calls the module.
    1 WorkInEvent "an event does the work by itself, and opens keys inside the server's own write"
    2 WorkBehindEvent "a job behind an event does the work, inside the server's scan of keys that expire"
    3 LeftIsUntold "a client that is gone is taken for one that was not told, though its answer was made"
    4 UntoldIsTold "a grant whose answer was certainly never made is not taken back"
    5 ToldElsewhereIsForgotten "what another connection was told of the same token does not make the grant stand"
    6 LastCopyDecides "of copies of a request the last to go decides whether a grant was told"
    7 StallIsUnseen "the module writes right after a standstill of the event loop"
    8 SettlingIsShort "a shorter gap in the time after a standstill counts as time to settle"
    9 NothingWatches "no tick watches the event loop"
    10 PastIsExpiry "an expiry that a command has set into the past is taken for the end of a lease"
    11 ShortestLease "copies of a request get the shortest lease"
    12 NoLeaseBySession "a copy without a lease leaves a lock in a session without one"
    13 OldCopiesLease "a copy that comes back to an away place keeps the lease of those that have left"
    14 ReleaseLetsWait "RELEASE leaves a token in line where the key holds something else"
    15 SlotIsUnseen "the module does not ask whose slot it is"
    16 MissingInMigration "the module grants a lock whose key may be on its way to another node"
    17 SessionOutlivesSlot "a session waits for its slot to come back"
    18 AnyHolderIsMine "a session goes on although a foreign write has given its lock to another"
    19 FlushForgetsWaiters "nobody looks at locks after FLUSHALL, SWAPDB or a reload"
    20 RoleIsUnseen "a replica goes on as a master"
    21 StateOutlivesRole "a former master goes on where it was when it is a master again"
    22 PlaceForever "the place of one who left is never dropped"
    23 PlaceForNobody "the place of one who left is dropped at once"
    24 PauseIsUnseen "the module writes in a pause"
    25 FenceIsUnseen "the module writes where the server refuses its clients' writes"
    // Who is next.
    26 Overtaking "a LOCK command takes a free lock that somebody waits for"
    27 LastIsFirst "the last in line gets the lock"
    28 NobodyIsNext "RELEASE frees the lock and leaves those who wait"
    29 DelIsUnheard "the event of DEL is ignored"
    30 LeaseIsUnwatched "nothing is set to the end of the lease when somebody begins to wait"
    31 LookedAtOnce "a lease that was lengthened while somebody waits is not looked at again"
    32 LeaseEndsLate "the end of a lease is looked at five milliseconds late"
    33 LastMillisecond "a lock counts as free in the last millisecond of its lease"
    34 DeadlineEarly "a wait ends a millisecond early"
    35 DeadlineLate "a wait ends five milliseconds late"
    36 TimedOutInSilence "a client whose time is up is not answered"
    37 GoneStaysInLine "a client that is gone stays in line"
    38 OneCopyHears "of copies of a request one is answered"
    39 CopyStandsTwice "a request that is sent again stands in line twice"
    40 TakerKeepsPlace "a claim that was granted without its away place keeps that, too"
    41 TurnIsLost "a grant that was taken back loses its turn"
    42 QueueWithoutEnd "lock.max-waiters is ignored"
    43 QueueStaysFull "lock.max-waiters counts those who have left"
    44 WithdrawnInSilence "a request that RELEASE withdraws is not answered"
    45 WrongDatabase "the module looks at the key of the same name in another database"
    // What holders are told and get.
    46 ToldTwice "a client is answered twice"
    47 GrantedNil "a client is answered nil, and has the lock"
    48 AnybodyReleases "RELEASE frees the lock of somebody else"
    49 HoldCountsTwice "a REENTER with HOLD that is sent again counts once more"
    50 AllHoldsGo "RELEASE gives up all holds"
    51 LeaseCutShort "a repeated request shortens the lease"
    52 LeaseFromNothing "a repeated request gives a lease to a lock that has none"
    53 ExtendAddsToNow "EXTEND ADD counts from now"
    54 StrictIsLax "NX is ignored"
    55 LeaseFromTheAsking "the lease of a waiter counts from when it asked"
    56 ErrorWrites "a request that is refused changes the lease"
    57 ClockIsFence "fencing tokens are the time"
    58 CounterIsFence "fencing tokens are the counter"
    // Sessions.
    59 FirstCloseReleases "the lock of a session goes with the first of its connections"
    60 CloseIsUnheard "the lock of a session stays when its connection closes"
    61 NoRenewal "the lease of a session is not renewed before it ends"
    62 RenewalCutsShort "a renewal shortens a lease that somebody made longer"
    63 OneHoldComesBack "a session takes its lock back with one hold"
    64 WaiterBeforeSession "a waiter gets the lock of an open session whose lease has ended"
    65 RevocationWaits "a LOCK command finds a holder that is about to lose the lock"
    66 SessionWithoutLease "a session begins on a lock without a lease"
    // What replicas and the AOF are told.
    67 RelativeExpiry "the stream has the length of a lease in the place of its end"
    68 DelIsMissing "a hand-over to a re-entrant lock leaves out the DEL of the last holder"
    69 DelComesLast "a hand-over to a re-entrant lock tells of the DEL behind the HSET"
    70 ExpiryIsKept "the stream leaves out the expiry of a re-entrant lock"
    71 ReleaseIsKept "the stream leaves out the DEL of a lock that is freed"
    72 NobodyIsSignalled "a lock is freed, and WATCH hears nothing"
    // More about what the server refuses, and who leaves.
    73 RevocationOutlivesRole "a former master takes a lock back that it was to take back before it became a replica"
    74 RefusedRenewalIsOver "a renewal that the server refuses is not tried again"
    75 RefusedRevocationIsOver "a lock that cannot be taken back now stays with its holder"
    76 RefusedReviewIsOver "a grant that the server refuses is not tried again"
    77 NobodyTriesAgain "what has to wait while the server takes no writes is not tried again"
    78 TimeOutsWait "time-outs wait while the server takes no writes"
    79 TimedOutLosesTurn "the place of one whose time was up is not kept"
    80 CopyTakesPlaceAlong "a copy that leaves takes the place of the others with it"
    81 AnswerBeforeWrite "a waiter is answered before the lock is written"
    // More about sessions.
    82 OneCopyOwns "of copies with SESSION one gets the lock for its connection"
    83 NobodyOwns "a waiter that asked for a session gets none"
    84 HoldsOfSessionAreOld "a session does not learn of more holds"
    85 ExtendedSessionIsOld "a session does not learn of EXTEND"
    86 RepeatPutsRenewalOff "a repeated request puts the renewal of a session off"
    // More about holding.
    87 DataIsFree "a key that is no lock is taken for a free one"
    88 AnyHashIsLock "a Hash with any number is taken for a lock"
    89 FormsAreOne "ACQUIRE succeeds for the owner of a re-entrant lock"
    90 HoldIsIgnored "RELEASE with another HOLD than the present one releases"
    91 ReleaseTwice "a RELEASE with HOLD that is sent again is refused"
    92 AnybodyDraws "LOCK.FENCE draws for anybody"
    93 LaterHoldBegins "REENTER with a later HOLD takes a free lock"
    94 FenceIsKept "the stream leaves out the counter of fencing tokens"
    95 FenceDrawsNothing "LOCK.FENCE replies and leaves the counter as it is"
    // More about time.
    96 IdleStallIsUnseen "a stall of a server that had nothing to do is not seen"
    97 PlaceTooLong "the place of one who left is kept five times as long"
    98 RenewalIsShort "a renewal sets half of the lease"
    99 RenewalTooOften "the lease of a session is renewed every tenth of it"
    100 LeaseOfOthersEndsSession "a session ends when somebody else sets the lease of its lock"
    101 ReloadEndsSessions "sessions end when the keyspace is reloaded or swapped"
    // What is shown, and what is left.
    102 LastIsShownFirst "LOCK.WAITERS begins with the last in line"
    103 AwayIsCounted "LOCK.INFO counts places that are away"
    104 ClosedIsShown "LOCK.INFO shows connections that are closed"
    105 ClientIsKept "what is known of a blocked client is kept when it is freed"
    // Limits, and what is met rarely.
    106 SessionsWithoutEnd "lock.max-sessions is ignored"
    107 WaitsWithoutEnd "lock.max-block-ms is ignored"
    108 GraceForever "places are kept although lock.rejoin-grace-ms is 0"
    109 CounterLosesExpiry "a counter of fencing tokens loses its expiry"
    110 TextIsCounter "LOCK.FENCE overwrites what is no number"
    111 EvictionIsUnheard "the event of an eviction is ignored"
    112 RestoreIsUnheard "a session outlives what RESTORE puts in the place of its lock"
    113 SessionInScript "a script begins a session"
}
