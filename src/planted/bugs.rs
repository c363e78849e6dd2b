//! All defects: number, name, and what is wrong.

/// Defines [`Bug`]. The numbers are in order, from 1. What a checker says of each begins or ends with, or has in it, the
/// words that follow: seen as anything else, it may have been found by chance.
macro_rules! bugs {
    ($($number:literal $name:ident $what:literal seen as $sign:literal)*) => {
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

            /// Returns words that are in what is said of it.
            pub fn sign(self) -> &'static str {
                match self {
                    $(Self::$name => $sign,)*
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
    1 WorkInEvent "an event does the work by itself, and opens keys inside the server's own write" seen as "in an event"
    2 WorkBehindEvent "a job behind an event does the work, inside the server's scan of keys that expire" seen as "a key is opened in an event"
    3 LeftIsUntold "a client that is gone is taken for one that was not told, though its answer was made" seen as "the lock is taken from"
    4 UntoldIsTold "a grant whose answer was certainly never made is not taken back" seen as "never told"
    5 ToldElsewhereIsForgotten "what another connection was told of the same token does not make the grant stand" seen as "the lock is taken from"
    6 LastCopyDecides "of copies of a request the last to go decides whether a grant was told" seen as "the lock is taken from"
    7 StallIsUnseen "the module writes right after a standstill of the event loop" seen as "a write before the server could see what happened while it stood still"
    8 SettlingIsShort "a shorter gap in the time after a standstill counts as time to settle" seen as "a write before the server could see what happened while it stood still"
    9 NothingWatches "no tick watches the event loop" seen as "a write before the server could see what happened while it stood still"
    10 PastIsExpiry "an expiry that a command has set into the past is taken for the end of a lease" seen as "overtakes"
    11 ShortestLease "copies of a request get the shortest lease" seen as "is granted, with"
    12 NoLeaseBySession "a copy without a lease leaves a lock in a session without one" seen as "is granted, with"
    13 OldCopiesLease "a copy that comes back to an away place keeps the lease of those that have left" seen as "is granted, with"
    14 ReleaseLetsWait "RELEASE leaves a token in line where the key holds something else" seen as "overtakes"
    15 SlotIsUnseen "the module does not ask whose slot it is" seen as "a write to a key of another node"
    16 MissingInMigration "the module grants a lock whose key may be on its way to another node" seen as "a write to a key that may be at another node already"
    17 SessionOutlivesSlot "a session waits for its slot to come back" seen as "gets the lock, and nobody waits"
    18 AnyHolderIsMine "a session goes on although a foreign write has given its lock to another" seen as "becomes"
    19 FlushForgetsWaiters "nobody looks at locks after FLUSHALL, SWAPDB or a reload" seen as "free since"
    20 RoleIsUnseen "a replica goes on as a master" seen as "a write on a replica"
    21 StateOutlivesRole "a former master goes on where it was when it is a master again" seen as "nobody waits"
    22 PlaceForever "the place of one who left is never dropped" seen as "overtakes"
    23 PlaceForNobody "the place of one who left is dropped at once" seen as "overtakes"
    24 PauseIsUnseen "the module writes in a pause" seen as "a write in a pause"
    25 FenceIsUnseen "the module writes where the server refuses its clients' writes" seen as "a write where the server would refuse a client's"
    // Who is next.
    26 Overtaking "a LOCK command takes a free lock that somebody waits for" seen as "overtakes"
    27 LastIsFirst "the last in line gets the lock" seen as "overtakes"
    28 NobodyIsNext "RELEASE frees the lock and leaves those who wait" seen as "the lock is taken from"
    29 DelIsUnheard "the event of DEL is ignored" seen as "free since"
    30 LeaseIsUnwatched "nothing is set to the end of the lease when somebody begins to wait" seen as "free since"
    31 LookedAtOnce "a lease that was lengthened while somebody waits is not looked at again" seen as "free since"
    32 LeaseEndsLate "the end of a lease is looked at five milliseconds late" seen as "free since"
    33 LastMillisecond "a lock counts as free in the last millisecond of its lease" seen as "the lock is taken from"
    34 DeadlineEarly "a wait ends a millisecond early" seen as "nil before the time is up"
    35 DeadlineLate "a wait ends five milliseconds late" seen as "the time of request"
    36 TimedOutInSilence "a client whose time is up is not answered" seen as "INFO counts"
    37 GoneStaysInLine "a client that is gone stays in line" seen as "gets the lock, and nobody waits"
    38 OneCopyHears "of copies of a request one is answered" seen as "was let go, and is not answered"
    39 CopyStandsTwice "a request that is sent again stands in line twice" seen as "the lock is taken from"
    40 TakerKeepsPlace "a claim that was granted without its away place keeps that, too" seen as "is answered"
    41 TurnIsLost "a grant that was taken back loses its turn" seen as "overtakes"
    42 QueueWithoutEnd "lock.max-waiters is ignored" seen as "and must not"
    43 QueueStaysFull "lock.max-waiters counts those who have left" seen as "does not wait"
    44 WithdrawnInSilence "a request that RELEASE withdraws is not answered" seen as "was let go, and is not answered"
    45 WrongDatabase "the module looks at the key of the same name in another database" seen as "free since"
    // What holders are told and get.
    46 ToldTwice "a client is answered twice" seen as "a blocked client is answered twice"
    47 GrantedNil "a client is answered nil, and has the lock" seen as "answered Nil, granted"
    48 AnybodyReleases "RELEASE frees the lock of somebody else" seen as "the lock is taken from"
    49 HoldCountsTwice "a REENTER with HOLD that is sent again counts once more" seen as "becomes"
    50 AllHoldsGo "RELEASE gives up all holds" seen as "the lock is taken from"
    51 LeaseCutShort "a repeated request shortens the lease" seen as "becomes"
    52 LeaseFromNothing "a repeated request gives a lease to a lock that has none" seen as "becomes"
    53 ExtendAddsToNow "EXTEND ADD counts from now" seen as "becomes"
    54 StrictIsLax "NX is ignored" seen as "does not wait"
    55 LeaseFromTheAsking "the lease of a waiter counts from when it asked" seen as "is granted, with"
    56 ErrorWrites "a request that is refused changes the lease" seen as "becomes"
    57 ClockIsFence "fencing tokens are the time" seen as "the token after"
    58 CounterIsFence "fencing tokens are the counter" seen as "the token after"
    // Sessions.
    59 FirstCloseReleases "the lock of a session goes with the first of its connections" seen as "the lock is taken from"
    60 CloseIsUnheard "the lock of a session stays when its connection closes" seen as "a connection that is closed"
    61 NoRenewal "the lease of a session is not renewed before it ends" seen as "was to be renewed at"
    62 RenewalCutsShort "a renewal shortens a lease that somebody made longer" seen as "is renewed to"
    63 OneHoldComesBack "a session takes its lock back with one hold" seen as "holds are given back"
    64 WaiterBeforeSession "a waiter gets the lock of an open session whose lease has ended" seen as "gets the lock of an open session"
    65 RevocationWaits "a LOCK command finds a holder that is about to lose the lock" seen as "becomes"
    66 SessionWithoutLease "a session begins on a lock without a lease" seen as "is answered"
    // What replicas and the AOF are told.
    67 RelativeExpiry "the stream has the length of a lease in the place of its end" seen as "the AOF"
    68 DelIsMissing "a hand-over to a re-entrant lock leaves out the DEL of the last holder" seen as "the AOF"
    69 DelComesLast "a hand-over to a re-entrant lock tells of the DEL behind the HSET" seen as "the AOF"
    70 ExpiryIsKept "the stream leaves out the expiry of a re-entrant lock" seen as "the AOF"
    71 ReleaseIsKept "the stream leaves out the DEL of a lock that is freed" seen as "the AOF"
    72 NobodyIsSignalled "a lock is freed, and WATCH hears nothing" seen as "should have made"
    // More about what the server refuses, and who leaves.
    73 RevocationOutlivesRole "a former master takes a lock back that it was to take back before it became a replica" seen as "is answered"
    74 RefusedRenewalIsOver "a renewal that the server refuses is not tried again" seen as "not given back to its session"
    75 RefusedRevocationIsOver "a lock that cannot be taken back now stays with its holder" seen as "a connection that is closed"
    76 RefusedReviewIsOver "a grant that the server refuses is not tried again" seen as "free since"
    77 NobodyTriesAgain "what has to wait while the server takes no writes is not tried again" seen as "the time of request"
    78 TimeOutsWait "time-outs wait while the server takes no writes" seen as "the loop does not come to its sleep"
    79 TimedOutLosesTurn "the place of one whose time was up is not kept" seen as "overtakes"
    80 CopyTakesPlaceAlong "a copy that leaves takes the place of the others with it" seen as "overtakes"
    81 AnswerBeforeWrite "a waiter is answered before the lock is written" seen as "answered Integer(1), granted"
    // More about sessions.
    82 OneCopyOwns "of copies with SESSION one gets the lock for its connection" seen as "is renewed to"
    83 NobodyOwns "a waiter that asked for a session gets none" seen as "was to be renewed at"
    84 HoldsOfSessionAreOld "a session does not learn of more holds" seen as "holds are given back"
    85 ExtendedSessionIsOld "a session does not learn of EXTEND" seen as "is renewed to"
    86 RepeatPutsRenewalOff "a repeated request puts the renewal of a session off" seen as "was to be renewed at"
    // More about holding.
    87 DataIsFree "a key that is no lock is taken for a free one" seen as "becomes"
    88 AnyHashIsLock "a Hash with any number is taken for a lock" seen as "waits, and the lock"
    89 FormsAreOne "ACQUIRE succeeds for the owner of a re-entrant lock" seen as "does not wait"
    90 HoldIsIgnored "RELEASE with another HOLD than the present one releases" seen as "the lock is taken from"
    91 ReleaseTwice "a RELEASE with HOLD that is sent again is refused" seen as "is answered"
    92 AnybodyDraws "LOCK.FENCE draws for anybody" seen as "draws a token"
    93 LaterHoldBegins "REENTER with a later HOLD takes a free lock" seen as "gets the lock, and nobody waits"
    94 FenceIsKept "the stream leaves out the counter of fencing tokens" seen as "the AOF"
    95 FenceDrawsNothing "LOCK.FENCE replies and leaves the counter as it is" seen as "draws nothing"
    // More about time.
    96 IdleStallIsUnseen "a stall of a server that had nothing to do is not seen" seen as "a write before the server could see what happened while it stood still"
    97 PlaceTooLong "the place of one who left is kept five times as long" seen as "overtakes"
    98 RenewalIsShort "a renewal sets half of the lease" seen as "is renewed to"
    99 RenewalTooOften "the lease of a session is renewed every tenth of it" seen as "that was due at"
    100 LeaseOfOthersEndsSession "a session ends when somebody else sets the lease of its lock" seen as "was to be renewed at"
    101 ReloadEndsSessions "sessions end when the keyspace is reloaded or swapped" seen as "was to be renewed at"
    // What is shown, and what is left.
    102 LastIsShownFirst "LOCK.WAITERS begins with the last in line" seen as "LOCK.WAITERS"
    103 AwayIsCounted "LOCK.INFO counts places that are away" seen as "LOCK.INFO"
    104 ClosedIsShown "LOCK.INFO shows connections that are closed" seen as "LOCK.INFO"
    105 ClientIsKept "what is known of a blocked client is kept when it is freed" seen as "everybody has left"
    // Limits, and what is met rarely.
    106 SessionsWithoutEnd "lock.max-sessions is ignored" seen as "makes 3 sessions"
    107 WaitsWithoutEnd "lock.max-block-ms is ignored" seen as "the time of request"
    108 GraceForever "places are kept although lock.rejoin-grace-ms is 0" seen as "overtakes"
    109 CounterLosesExpiry "a counter of fencing tokens loses its expiry" seen as "does not keep its expiry"
    110 TextIsCounter "LOCK.FENCE overwrites what is no number" seen as "is drawn from"
    111 EvictionIsUnheard "the event of an eviction is ignored" seen as "gets the lock, and nobody waits"
    112 RestoreIsUnheard "a session outlives what RESTORE puts in the place of its lock" seen as "gets the lock, and nobody waits"
    113 SessionInScript "a script begins a session" seen as "is answered"
    // Several copies, several connections, and names that are almost alike.
    114 MiddleCopyCuts "of three copies of a request the second takes the first along when it leaves" seen as "INFO counts"
    115 OneOrphanAtATime "a LOCK command takes one closed connection at a time out of a session" seen as "the lock"
    116 ReleaseKeepsSession "a session outlives RELEASE" seen as "does not wait"
    117 CaseIsIgnored "a token is another's that differs in case" seen as "the lock"
    118 FenceWithoutEnd "fencing tokens go on beyond 2^53" seen as "beyond the last"
    119 InfoCountsLocks "INFO counts one waiter, however many there are" seen as "INFO counts"
    // What is told by message.
    120 UnheardIsGranted "a grant that nobody listens for is made" seen as "gets the lock, and nobody waits"
    121 UnheardLosesTurn "a place for which nobody listens is not kept" seen as "overtakes"
    122 WriteBeforeMessage "the lock is written before anybody listens" seen as "told of it 0 times"
    123 ToldTwiceByMessage "a grant is told twice" seen as "told of it 2 times"
    124 MessageInReply "on Redis 7.0 a message is published in a transaction" seen as "a message in the middle of a reply"
    125 EndIsNotTold "a wait that ends without the lock is not told of" seen as "INFO counts"
    126 PostponedIsForgotten "a message that has to wait for a transaction is never published" seen as "and is not told"
    127 NobodyNeedListen "a request waits for a message that nobody listens for" seen as "is answered"
    128 MessageNamesNoDatabase "a message names database 0, whichever it is" seen as "and it is not so"
    129 DemotionIsNotTold "a server that becomes a replica does not say that waits are lost" seen as "is lost, and not told"
    130 LostSlotIsUnseen "nobody looks whether the slot of a lock has left" seen as "is lost, and not told"
    131 AskerMayClose "a request that is told by message outlives its connection" seen as "INFO counts"
    132 RepeatIsAnother "a request that is sent again with the same channel waits a second time" seen as "INFO counts"
    133 FreeIsAnyones "a lock whose next holder could not be told yet is anyone's" seen as "overtakes"
    134 NoWaitInTransaction "a request that is told by message does not wait in a transaction" seen as "is answered"
    135 RepeatTakesSession "a request that is sent again without SESSION takes the session away" seen as "is granted, with"
    136 NotifiedIsDetached "who was told by message loses the session when a copy of its request is let go untold" seen as "INFO counts"
    // Shares.
    137 FormIsTurned "who holds one form of a lock waits for another" seen as "waits, and the lock"
    138 NextIsNotSeen "nobody looks whether there is room for the share behind one who leaves the line" seen as "has room since"
    139 OtherPlacesStay "who is granted one form of a lock stays in line for the others" seen as "was let go, and is not answered"
    140 PermitTooMany "one share more is granted than the limit" seen as "is granted beside"
    141 ReadersOvertake "a share is granted although somebody waits in line" seen as "overtakes"
    142 PassedShareCounts "a share whose time has passed counts" seen as "should have made"
    143 BatchIsShort "of shares that stand together at the head of the queue one is granted in a step" seen as "waits, and there is room"
    144 LimitOfCopyIsForgotten "the limit of a copy is forgotten" seen as "is granted beside"
    145 ReleasedShareKeepsSession "the session of a share outlives its release" seen as "gets the lock, and nobody waits"
    146 KeyOutlivesShares "a share does not set the expiry of its key" seen as "the key lives until"
    147 PassedSharesStay "shares whose time has passed are not removed" seen as "leaves shares whose time has passed"
    148 LapsedShareIsRemoved "a share whose time has passed is removed although its connection is open" seen as "the share of an open session is removed"
    149 ShareGoesInSilence "the stream leaves out that a share is removed" seen as "the AOF"
    150 EndOfOthersIsUnseen "a share that is taken back leaves the end of the others out of sight" seen as "free since"
    151 OrphanIsConfirmed "a share that is about to be taken back is confirmed" seen as "is answered"
    152 ZremIsUnheard "the events of Sorted Sets are ignored" seen as "has room since"
    153 SharesStayGone "shares of open sessions are not given back when the lock has ended" seen as "given back to its session"
    // What LOCK.QUEUES lists.
    154 ShortestComesFirst "LOCK.QUEUES begins with the shortest line" seen as "LOCK.QUEUES"
    155 ListsDatabaseZero "LOCK.QUEUES lists the locks of database 0, whichever is selected" seen as "LOCK.QUEUES"
    // The recovery period, and the longest lease.
    156 StartBeginsNothing "a start begins no recovery period" seen as "INFO says that nobody is granted a lock for 0 ms"
    157 PromotionBeginsNothing "a promotion begins no recovery period" seen as "INFO says that nobody is granted a lock for 0 ms"
    158 FirstBeginningCounts "a recovery period counts from the first start or promotion" seen as "INFO says that nobody is granted a lock for 0 ms"
    159 PeriodIsShort "a recovery period is half as long" seen as "INFO says that nobody is granted a lock for"
    160 PeriodIsNotShown "LOCK.INFO does not show the recovery period" seen as "LOCK.INFO"
    161 FreeIsTakenInPeriod "a free lock is anybody's in a recovery period" seen as "is granted the lock, and nobody is"
    162 ShareIsTakenInPeriod "a share is granted in a recovery period" seen as "is granted the lock, and nobody is"
    163 HandedOnInPeriod "RELEASE hands the lock on in a recovery period" seen as "is granted the lock, and nobody is"
    164 SessionReturnsInPeriod "a session takes its lock back in a recovery period" seen as "is granted the lock, and nobody is"
    165 ShareReturnsInPeriod "the shares of sessions are given back in a recovery period" seen as "is granted the lock, and nobody is"
    166 NobodyIsServedAtItsEnd "nobody looks at those who wait when a recovery period is over" seen as "and somebody waits for it"
    167 SettingIsUnfollowed "nobody looks at those who wait when a recovery period is ended by its setting" seen as "INFO says that nobody is granted a lock for"
    168 StandstillHoldsNothingBack "a server that stood still grants locks" seen as "INFO says that nobody is granted a lock for 0 ms"
    169 StandstillIsShort "after a standstill nobody is granted a lock for 1.2 s" seen as "INFO says that nobody is granted a lock for"
    170 FirstAfterStandstillIsServed "the first command after a standstill is served" seen as "is granted the lock, and nobody is"
    171 LagIsUnseen "the time after a standstill does not follow min-replicas-max-lag" seen as "INFO says that nobody is granted a lock for"
    172 LeaseIsSetAfterStandstill "a lease is set after a standstill" seen as "becomes"
    173 RepeatLengthensAfterStandstill "a repeated request lengthens the lease after a standstill" seen as "becomes"
    174 ReenterIsUnlimited "REENTER may ask for any lease" seen as "REENTER"
    175 ExtendIsUnlimited "EXTEND may set any lease" seen as "EXTEND"
    176 AddIsUnlimited "EXTEND ADD may lengthen a lease without end" seen as "becomes"
    177 ReleaseIsUnlimited "RELEASE may set any lease" seen as "RELEASE"
    178 WaiterGetsItsLease "who has waited gets the lease that it asked for" seen as "is granted, with"
    179 SessionKeepsItsLease "a session is renewed by a lease that is too long now" seen as "is renewed to"
    180 LeaseIsLengthenedInPeriod "a lease is lengthened while the master before this one may still grant the lock" seen as "becomes"
    // Those who wait by other means.
    181 ForeignAreNotWoken "a lock that is left free wakes nobody who waits by the means of another library" seen as "others are not woken"
    182 SignalStays "a signal for the waiters of another library stays for ever" seen as "others are not woken"
    183 FormIsMistaken "the release of a re-entrant lock wakes those who wait for a mutex" seen as "others are"
    184 HeirIsDisturbed "a lock that is handed over wakes others" seen as "others are woken for"
    // What fuzzing has found.
    185 ReturnedIsRenewedLate "a session that gets its lock back for a lease that was cut is renewed when that has ended" seen as "was to be renewed at"
    // Copies of a request that differ.
    186 LeftCopyCounts "the limit of a copy still counts after it has left" seen as "waits for it"
    // One lock's queue and other locks.
    187 LongQueueGoesFirst "a lock with a long queue has all its batches before other locks have their turn" seen as "iterations"
}
