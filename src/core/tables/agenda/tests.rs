use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

type Places = BTreeMap<Slot, UnixMs>;

fn owner(number: usize) -> Slot {
    std::iter::successors(Some(Slot::MIN), |slot| slot.next()).nth(number).unwrap()
}

fn insert(agenda: &mut Agenda<u32>, places: &mut Places, number: usize, time: UnixMs, item: u32) {
    let owner = owner(number);
    agenda.insert(owner, places.entry(owner).or_insert(NEVER), time, item);
}

/// Takes one turn: removes the earliest item of the owner. Returns both.
fn turn(agenda: &mut Agenda<u32>, places: &mut Places, now: UnixMs) -> Option<(Slot, u32)> {
    let owner = agenda.turn(now)?;
    let place = places.get_mut(&owner).unwrap();
    let (time, item) = agenda
        .items_of(owner, AT_ONCE)
        .next()
        .filter(|(time, _)| *time <= now)
        .expect("an owner has its turn without a due item");
    agenda.remove(owner, place, time, item);
    agenda.end_turn(owner, place, now);
    Some((owner, item))
}

#[test]
fn owner_with_many_items_delays_no_other() {
    for time in [AT_ONCE, 5] {
        let (mut agenda, mut places) = (Agenda::new(), Places::new());
        (0..1000).for_each(|item| insert(&mut agenda, &mut places, 0, time, item));
        [1, 2].into_iter().for_each(|other| insert(&mut agenda, &mut places, other, time, 0));
        let owners: Vec<_> = (0..6).filter_map(|_| turn(&mut agenda, &mut places, 9)).map(|(owner, _)| owner).collect();
        assert!(owners.contains(&owner(1)) && owners.contains(&owner(2)), "{time}: {owners:?}");
    }
}

#[test]
fn crowd_does_not_delay_later_owner() {
    for (crowd, later) in [(AT_ONCE, AT_ONCE), (5, 6), (AT_ONCE, 6), (5, AT_ONCE)] {
        let (mut agenda, mut places) = (Agenda::new(), Places::new());
        (0..1000).for_each(|number| insert(&mut agenda, &mut places, number, crowd, 0));
        for number in 1000..1050 {
            insert(&mut agenda, &mut places, number, later, 0);
            let turns = [(); 4].map(|()| turn(&mut agenda, &mut places, 9).map(|(owner, _)| owner));
            assert!(turns.contains(&Some(owner(number))), "{crowd}, {later}: {turns:?}");
        }
    }
}

#[test]
fn newest_do_not_starve_oldest() {
    for time in [AT_ONCE, 5] {
        let (mut agenda, mut places) = (Agenda::new(), Places::new());
        (0..10).for_each(|number| insert(&mut agenda, &mut places, number, time, 0));
        let mut oldest = 10;
        for number in 10..60 {
            insert(&mut agenda, &mut places, number, time, 0);
            let turns = [(); 2].map(|()| turn(&mut agenda, &mut places, 9));
            oldest -= turns.iter().flatten().filter(|(found, _)| *found < owner(10)).count();
        }
        assert_eq!(oldest, 0, "{time}");
    }
}

#[test]
fn resting_owner_has_no_turn_until_woken() {
    for time in [AT_ONCE, 5] {
        let (mut agenda, mut places) = (Agenda::new(), Places::new());
        [0, 1].into_iter().for_each(|number| insert(&mut agenda, &mut places, number, time, 7));
        agenda.rest(owner(0), places.get_mut(&owner(0)).unwrap());
        insert(&mut agenda, &mut places, 0, AT_ONCE, 8);
        let turns: Vec<_> = std::iter::from_fn(|| turn(&mut agenda, &mut places, 9)).collect();
        assert_eq!((turns, agenda.earliest()), (vec![(owner(1), 7)], Some(AT_ONCE)));
        assert_eq!(agenda.next_resting(), Some(owner(0)));
        agenda.wake(owner(0), places.get_mut(&owner(0)).unwrap());
        let turns: Vec<_> = std::iter::from_fn(|| turn(&mut agenda, &mut places, 9)).map(|(_, item)| item).collect();
        assert_eq!((turns.len(), agenda.earliest(), agenda.entry_count()), (2, None, 0));
    }
}

proptest! {
    /// Each item has its turn once, none before it is due, and the agenda knows the time of the next.
    #[test]
    fn every_item_has_its_turn_when_due(
        steps in prop::collection::vec((0..4_usize, 0..6_u32, prop_oneof![Just(AT_ONCE), 0..50_i64], any::<bool>()), 1..100)
    ) {
        let (mut agenda, mut places, mut items, mut now) = (Agenda::new(), Places::new(), BTreeMap::new(), 0);
        for (number, item, time, inserts) in steps {
            let key = (owner(number), item);
            match items.get(&key).copied() {
                None if inserts => {
                    insert(&mut agenda, &mut places, number, time, item);
                    items.insert(key, time);
                }
                Some(before) if inserts => {
                    agenda.remove(key.0, places.get_mut(&key.0).unwrap(), before, item);
                    items.remove(&key);
                }
                _ => {
                    now = now.max(time);
                    while let Some(found) = turn(&mut agenda, &mut places, now) {
                        let time = items.remove(&found).expect("an item has two turns");
                        prop_assert!(time <= now);
                    }
                    prop_assert!(items.values().all(|&time| time > now), "an item has no turn");
                }
            }
            for (&owner, &place) in &places {
                agenda.check_place(owner, place);
            }
            let earliest = items.values().min().copied();
            prop_assert_eq!(agenda.earliest().is_some(), earliest.is_some());
            prop_assert!(agenda.earliest() >= earliest && (earliest > Some(now) || agenda.earliest() <= Some(now)));
        }
        let empty = if items.is_empty() { 0 } else { 1 };
        prop_assert!(agenda.entry_count() >= items.len() + empty);
    }
}
