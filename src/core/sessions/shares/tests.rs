use super::*;
use crate::core::sessions::walk::MOST_AT_ONCE;
use crate::core::{ClientId, Remains, SessionTask};

const NOW: UnixMs = 1_000_000;
const DB: i32 = 0;
const DOOR: &[u8] = b"door";

/// Gives so many shares of the door sessions, each with a connection of its own.
fn sessions(count: usize) -> Sessions {
    let mut sessions = Sessions::new();
    (0..count).for_each(|number| attach(&mut sessions, Kind::Shared, &name(number), number as ClientId));
    sessions
}

/// The token of a share. Their order is that of their numbers.
fn name(number: usize) -> String {
    format!("{number:06}")
}

fn names(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(name).collect()
}

fn attach(sessions: &mut Sessions, kind: Kind, owner: &str, client: ClientId) {
    let (key, owner, lease) = (DOOR.into(), owner.as_bytes().into(), Lease::from_ms(300).unwrap());
    sessions.attach(SessionLock { db: DB, key, kind, owner, holds: 1, lease }, client, NOW);
}

fn share(token: &str) -> Seat<'_> {
    Seat { db: DB, key: DOOR, share: Some(token.as_bytes()) }
}

fn text(token: &[u8]) -> String {
    String::from_utf8_lossy(token).into_owned()
}

/// The tokens of a stretch, and the one that comes next.
fn shown(stretch: Stretch) -> (Vec<String>, Option<String>) {
    (stretch.tokens.iter().map(|token| text(token)).collect(), stretch.next.as_deref().map(text))
}

fn doubted(sessions: &mut Sessions) -> Option<(Vec<String>, Option<String>)> {
    sessions.next_doubtful(DB, DOOR).map(shown)
}

fn returned(sessions: &mut Sessions) -> Option<(Vec<String>, Option<String>)> {
    sessions.next_to_return(DB, DOOR).map(shown)
}

/// The token of the share that is to be renewed at once.
fn renewed_at_once(sessions: &mut Sessions) -> Option<String> {
    match sessions.pop_due(UnixMs::MIN, true) {
        Some(SessionTask::Renew(id)) => sessions.get(id).map(|session| text(&session.lock.owner)),
        other => panic!("{other:?} is no renewal"),
    }
}

#[test]
fn only_what_is_shared_can_be_in_doubt() {
    let mut sessions = Sessions::new();
    attach(&mut sessions, Kind::Mutex, "alone", 1);
    assert!(!sessions.has_shares(DB, DOOR));
    sessions.doubt_shares(DB, DOOR);
    assert!(!sessions.is_doubtful(DB, DOOR) && sessions.first_doubtful().is_none());
    attach(&mut sessions, Kind::Shared, "one", 1);
    assert!(sessions.has_shares(DB, DOOR) && !sessions.has_shares(DB, b"gate"));
    assert_eq!(sessions.shares(DB, DOOR).collect::<Vec<_>>(), [sessions.find(share("one")).unwrap()]);
    assert!(doubted(&mut sessions).is_none());
    sessions.doubt_shares(DB, DOOR);
    assert!(sessions.is_doubtful(DB, DOOR) && !sessions.is_doubtful(DB, b"gate"));
    assert_eq!(sessions.next_due(), Some(UnixMs::MIN));
    assert_eq!(sessions.first_doubtful(), Some((DB, DOOR.into())));
    assert_eq!(doubted(&mut sessions), Some((vec!["one".to_owned()], None)));
    assert!(!sessions.is_doubtful(DB, DOOR) && sessions.first_doubtful().is_none());
}

#[test]
fn shares_in_doubt_are_looked_at_in_stretches() {
    for count in [MOST_AT_ONCE, MOST_AT_ONCE + 1, 2 * MOST_AT_ONCE + 3] {
        let mut sessions = sessions(count);
        sessions.doubt_shares(DB, DOOR);
        for from in (0..count).step_by(MOST_AT_ONCE) {
            let next = (from + MOST_AT_ONCE < count).then(|| name(from + MOST_AT_ONCE));
            let stretch = (names(from..count.min(from + MOST_AT_ONCE)), next);
            assert_eq!(doubted(&mut sessions), Some(stretch), "of {count} from {from}");
        }
        assert!(doubted(&mut sessions).is_none());
    }
}

#[test]
fn a_doubt_that_comes_up_during_a_look_makes_for_another() {
    let mut sessions = sessions(MOST_AT_ONCE + 1);
    sessions.doubt_shares(DB, DOOR);
    doubted(&mut sessions);
    sessions.doubt_shares(DB, DOOR);
    assert_eq!(doubted(&mut sessions).unwrap().0, names(MOST_AT_ONCE..MOST_AT_ONCE + 1), "the first comes to its end");
    assert_eq!(doubted(&mut sessions).unwrap().0, names(0..MOST_AT_ONCE));
    assert_eq!(doubted(&mut sessions).unwrap().0.len(), 1);
    assert!(!sessions.is_doubtful(DB, DOOR));
}

#[test]
fn shares_are_given_back_one_stretch_after_the_other() {
    let mut sessions = sessions(MOST_AT_ONCE + 1);
    let (first, last) = (name(0), name(MOST_AT_ONCE));
    let is_to_return = |sessions: &Sessions| [&first, &last].map(|token| sessions.is_to_return(share(token)));
    assert!(!sessions.is_returning(DB, DOOR) && !sessions.is_returning_any());
    assert_eq!((is_to_return(&sessions), sessions.to_return(DB, DOOR)), ([false, false], 0));
    assert!(returned(&mut sessions).is_none());

    sessions.begin_return(DB, DOOR);
    assert!(sessions.is_returning(DB, DOOR) && !sessions.is_returning(DB, b"gate") && sessions.is_returning_any());
    assert!(!sessions.is_doubtful(DB, DOOR));
    assert_eq!((is_to_return(&sessions), sessions.to_return(DB, DOOR)), ([true, true], MOST_AT_ONCE + 1));
    assert_eq!(renewed_at_once(&mut sessions), Some(first.clone()));

    assert_eq!(returned(&mut sessions), Some((names(0..MOST_AT_ONCE), Some(last.clone()))));
    assert_eq!(is_to_return(&sessions), [false, true]);
    assert_eq!(renewed_at_once(&mut sessions), Some(last.clone()), "the next in turn goes on with it");
    assert_eq!(returned(&mut sessions), Some((vec![last.clone()], None)));
    assert_eq!((is_to_return(&sessions), sessions.to_return(DB, DOOR)), ([false, false], 0));
    assert!(!sessions.is_returning_any() && returned(&mut sessions).is_none());
}

#[test]
fn a_doubt_while_shares_are_given_back_is_looked_into_afterwards() {
    let mut sessions = sessions(2);
    sessions.begin_return(DB, DOOR);
    sessions.doubt_shares(DB, DOOR);
    assert!(sessions.is_doubtful(DB, DOOR) && sessions.first_doubtful().is_none());
    assert_eq!(returned(&mut sessions), Some((names(0..2), None)));
    assert_eq!(sessions.first_doubtful(), Some((DB, DOOR.into())));
}

#[test]
fn the_others_are_given_back_though_the_one_whose_turn_it_is_has_gone() {
    let mut sessions = sessions(MOST_AT_ONCE + 2);
    sessions.begin_return(DB, DOOR);
    assert_eq!(renewed_at_once(&mut sessions), Some(name(0)));
    returned(&mut sessions);
    assert_eq!(renewed_at_once(&mut sessions), Some(name(MOST_AT_ONCE)));
    sessions.end(share(&name(MOST_AT_ONCE)));
    assert_eq!(renewed_at_once(&mut sessions), Some(name(MOST_AT_ONCE + 1)));
    sessions.doubt_shares(DB, DOOR);
    assert!(sessions.first_doubtful().is_none(), "first they are given back");
    sessions.end(share(&name(MOST_AT_ONCE + 1)));
    assert!(!sessions.is_returning_any(), "nobody is left");
    assert_eq!(sessions.first_doubtful(), Some((DB, DOOR.into())));
}

#[test]
fn what_has_begun_ends_with_the_shares() {
    let mut sessions = sessions(1);
    let a_session = sessions.entry_count();
    sessions.doubt_shares(DB, DOOR);
    sessions.begin_return(DB, DOOR);
    assert_eq!(sessions.entry_count(), a_session + 3);
    sessions.end_shares(DB, DOOR);
    assert!(!sessions.is_returning_any() && sessions.first_doubtful().is_none());
    while sessions.forget_ended() {}
    assert_eq!(sessions.pop_due(UnixMs::MIN, true), None);
    assert_eq!(sessions.entry_count(), 0, "nothing is left");
}

#[test]
fn of_all_that_is_given_up_each_lock_under_way_is_freed_too() {
    let mut sessions = sessions(1);
    sessions.doubt_shares(DB, DOOR);
    let mut remains = Remains::new();
    sessions.end_all(&mut remains);
    // An entry and the end, for each of five tables, and the end of three that were empty.
    assert_eq!(std::iter::repeat_with(|| remains.drop_one()).take_while(|&left| left).count(), 13);
}
