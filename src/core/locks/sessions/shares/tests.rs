use super::*;
use crate::core::limits::MAX_BATCH;
use crate::core::{ClientId, HoldKey, Kind, Lease, NewSession, UnixMs};

const NOW: UnixMs = 1_000_000;
const DB: i32 = 0;
const DOOR: &[u8] = b"door";

/// Creates sessions for `count` shares of the door, each with a connection of its own.
fn sessions(count: usize) -> Locks {
    let mut sessions = Locks::new();
    (0..count).for_each(|number| attach(&mut sessions, Kind::Shared, &name(number), number as ClientId));
    sessions
}

/// The token of a share. The order of the tokens is that of their numbers.
fn name(number: usize) -> String {
    format!("{number:06}")
}

fn names(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(name).collect()
}

fn attach(sessions: &mut Locks, kind: Kind, owner: &str, client: ClientId) {
    let (key, owner, lease) = (DOOR.into(), owner.as_bytes().into(), Lease::from_ms(300).unwrap());
    sessions.attach(NewSession { db: DB, key, kind, owner, holds: 1, lease, grace: None }, client, NOW);
}

/// Returns the record of a lock, or a handle that finds nothing.
fn record(locks: &Locks, key: &[u8]) -> RecordId {
    locks.record_of(DB, key).unwrap_or(RecordId::from_bits(u64::MAX))
}

fn door(locks: &Locks) -> RecordId {
    record(locks, DOOR)
}

fn share(token: &str) -> HoldKey<'_> {
    HoldKey { db: DB, key: DOOR, share: Some(token.as_bytes()) }
}

fn text(token: &[u8]) -> String {
    String::from_utf8_lossy(token).into_owned()
}

/// The tokens of a batch, and the next token after them.
fn shown(batch: ShareBatch) -> (Vec<String>, Option<String>) {
    (batch.tokens.iter().map(|token| text(token)).collect(), batch.next.as_deref().map(text))
}

fn to_recheck(sessions: &mut Locks) -> Option<(Vec<String>, Option<String>)> {
    sessions.next_to_recheck(door(sessions)).map(shown)
}

fn returned(sessions: &mut Locks) -> Option<(Vec<String>, Option<String>)> {
    sessions.next_to_return(door(sessions)).map(shown)
}

/// Whether a recheck of the door is due now.
fn recheck_is_due(sessions: &Locks) -> bool {
    sessions.next_recheck() == Some(door(sessions))
}

/// The token of the share that is to be renewed now.
fn renewed_at_once(sessions: &mut Locks) -> Option<String> {
    match sessions.next_task(UnixMs::MIN, true) {
        Some(Task::Renew(id)) => sessions.hold(id).map(|hold| text(&hold.owner)),
        other => panic!("{other:?} is no renewal"),
    }
}

#[test]
fn only_shares_can_need_recheck() {
    let mut sessions = Locks::new();
    attach(&mut sessions, Kind::Mutex, "alone", 1);
    assert!(!sessions.has_shares(door(&sessions)));
    sessions.mark_for_recheck(door(&sessions));
    assert!(!sessions.needs_recheck(door(&sessions)) && !recheck_is_due(&sessions));
    attach(&mut sessions, Kind::Shared, "one", 1);
    assert!(sessions.has_shares(door(&sessions)) && !sessions.has_shares(record(&sessions, b"gate")));
    assert_eq!(sessions.shares(door(&sessions)).collect::<Vec<_>>(), [sessions.find_session(share("one")).unwrap()]);
    assert!(to_recheck(&mut sessions).is_none());
    sessions.mark_for_recheck(door(&sessions));
    assert!(sessions.needs_recheck(door(&sessions)) && !sessions.needs_recheck(record(&sessions, b"gate")));
    assert_eq!(sessions.next_due(true), Some(UnixMs::MIN));
    assert!(recheck_is_due(&sessions));
    assert_eq!(to_recheck(&mut sessions), Some((vec!["one".to_owned()], None)));
    assert!(!sessions.needs_recheck(door(&sessions)) && !recheck_is_due(&sessions));
}

#[test]
fn shares_are_rechecked_in_batches() {
    for count in [MAX_BATCH, MAX_BATCH + 1, 2 * MAX_BATCH + 3] {
        let mut sessions = sessions(count);
        sessions.mark_for_recheck(door(&sessions));
        for from in (0..count).step_by(MAX_BATCH) {
            let next = (from + MAX_BATCH < count).then(|| name(from + MAX_BATCH));
            let batch = (names(from..count.min(from + MAX_BATCH)), next);
            assert_eq!(to_recheck(&mut sessions), Some(batch), "of {count} from {from}");
        }
        assert!(to_recheck(&mut sessions).is_none());
    }
}

#[test]
fn change_during_recheck_causes_another() {
    let mut sessions = sessions(MAX_BATCH + 1);
    sessions.mark_for_recheck(door(&sessions));
    to_recheck(&mut sessions);
    sessions.mark_for_recheck(door(&sessions));
    assert_eq!(to_recheck(&mut sessions).unwrap().0, names(MAX_BATCH..MAX_BATCH + 1), "the first scan ends");
    assert_eq!(to_recheck(&mut sessions).unwrap().0, names(0..MAX_BATCH));
    assert_eq!(to_recheck(&mut sessions).unwrap().0.len(), 1);
    assert!(!sessions.needs_recheck(door(&sessions)));
}

#[test]
fn shares_are_returned_in_batches() {
    let mut sessions = sessions(MAX_BATCH + 1);
    let (first, last) = (name(0), name(MAX_BATCH));
    let is_to_return =
        |sessions: &Locks| [&first, &last].map(|token| sessions.is_to_return(door(sessions), Some(token.as_bytes())));
    assert!(!sessions.is_returning(door(&sessions)));
    assert_eq!(is_to_return(&sessions), [false, false]);
    assert!(returned(&mut sessions).is_none());

    sessions.begin_return(door(&sessions));
    assert!(sessions.is_returning(door(&sessions)) && !sessions.is_returning(record(&sessions, b"gate")));
    assert!(!sessions.needs_recheck(door(&sessions)));
    assert_eq!(is_to_return(&sessions), [true, true]);
    assert_eq!(renewed_at_once(&mut sessions), Some(first.clone()));

    assert_eq!(returned(&mut sessions), Some((names(0..MAX_BATCH), Some(last.clone()))));
    assert_eq!(is_to_return(&sessions), [false, true]);
    assert_eq!(renewed_at_once(&mut sessions), Some(last.clone()), "the next share continues");
    assert_eq!(returned(&mut sessions), Some((vec![last.clone()], None)));
    assert_eq!(is_to_return(&sessions), [false, false]);
    assert!(!sessions.is_returning(door(&sessions)) && returned(&mut sessions).is_none());
}

#[test]
fn change_during_return_is_rechecked_afterwards() {
    let mut sessions = sessions(2);
    sessions.begin_return(door(&sessions));
    sessions.mark_for_recheck(door(&sessions));
    assert!(sessions.needs_recheck(door(&sessions)) && !recheck_is_due(&sessions));
    assert_eq!(returned(&mut sessions), Some((names(0..2), None)));
    assert!(recheck_is_due(&sessions));
}

#[test]
fn return_continues_when_next_session_has_ended() {
    let mut sessions = sessions(MAX_BATCH + 2);
    sessions.begin_return(door(&sessions));
    assert_eq!(renewed_at_once(&mut sessions), Some(name(0)));
    returned(&mut sessions);
    assert_eq!(renewed_at_once(&mut sessions), Some(name(MAX_BATCH)));
    sessions.end_session(share(&name(MAX_BATCH)));
    assert_eq!(renewed_at_once(&mut sessions), Some(name(MAX_BATCH + 1)));
    sessions.mark_for_recheck(door(&sessions));
    assert!(!recheck_is_due(&sessions), "the shares are returned before");
    sessions.end_session(share(&name(MAX_BATCH + 1)));
    assert!(!sessions.is_returning(door(&sessions)), "no share is left");
    assert!(recheck_is_due(&sessions));
}

#[test]
fn recheck_ends_with_the_last_share() {
    let mut sessions = sessions(2);
    sessions.mark_for_recheck(door(&sessions));
    sessions.end_session(share(&name(0)));
    assert!(recheck_is_due(&sessions));
    sessions.end_session(share(&name(1)));
    assert_eq!((sessions.next_due(true), sessions.entry_count()), (None, 0));
}

#[test]
fn scans_end_with_the_shares() {
    let mut sessions = sessions(1);
    let a_session = sessions.entry_count();
    sessions.mark_for_recheck(door(&sessions));
    assert_eq!(sessions.entry_count(), a_session + 1);
    sessions.begin_return(door(&sessions));
    assert_eq!(sessions.entry_count(), a_session + 1);
    assert!(
        sessions.needs_recheck(door(&sessions)) && sessions.is_returning(door(&sessions)),
        "a recheck follows the return"
    );
    sessions.end_shares(door(&sessions));
    assert!(!sessions.is_returning(door(&sessions)) && !recheck_is_due(&sessions));
    while sessions.forget_ended() {}
    assert_eq!(sessions.next_task(UnixMs::MIN, true), None);
    assert_eq!(sessions.entry_count(), 0, "nothing is left");
}

#[test]
fn dropped_sessions_leave_no_scans() {
    for begin in [Locks::mark_for_recheck, Locks::begin_return] {
        let mut sessions = sessions(3);
        let door = door(&sessions);
        begin(&mut sessions, door);
        sessions.drop_holds();
        assert!(!sessions.has_shares(door));
        while sessions.next_task(NOW, true).is_some() {}
        assert_eq!((sessions.next_due(true), sessions.entry_count()), (None, 0));
    }
}

#[test]
fn end_of_last_session_ends_return() {
    let mut sessions = sessions(1);
    sessions.begin_return(door(&sessions));
    sessions.end_session(share(&name(0)));
    assert!(sessions.is_empty() && sessions.entry_count() == 0 && sessions.next_due(true).is_none());
}
