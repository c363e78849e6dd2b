//! How histories are chosen, and made shorter when one has failed.

use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use redis_lock::server::{ServerKind, WriteFence};

use crate::request::{Form, Identity, Request, Take, Verb};
use crate::step::{CLIENTS, Change, DOORS, History, Meddling, Setting, Slot, SlotFate, Step, Way};

/// Histories of up to so many steps.
pub fn histories(steps: usize) -> impl Strategy<Value = History> {
    let kinds = prop::sample::select(ServerKind::ALL.to_vec());
    let settings = prop_oneof![3 => Just(Setting::Alone), 2 => Just(Setting::Replicated), 1 => Just(Setting::Cluster)];
    (kinds, settings, vec(step(), 0..=steps)).prop_map(|(kind, setting, steps)| History { kind, setting, steps })
}

/// A history that gets shorter by any of its steps, and no other way.
pub fn parts_of(history: &History) -> impl Strategy<Value = History> + use<> {
    let (kind, setting) = (history.kind, history.setting);
    let steps: Vec<_> = history.steps.iter().cloned().map(|step| weighted(0.999_999, Just(step))).collect();
    steps.prop_map(move |steps| History { kind, setting, steps: steps.into_iter().flatten().collect() })
}

fn client() -> impl Strategy<Value = Slot> {
    0..CLIENTS
}

fn door() -> impl Strategy<Value = u8> {
    // Most clients want the same one.
    prop_oneof![4 => Just(0), 1 => 1..DOORS]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => ask(),
        16 => Just(Step::Turn),
        18 => (1u16..60).prop_map(Step::Pass),
        5 => (100u16..1500).prop_map(Step::Pass),
        9 => (client(), meddling()).prop_map(|(client, command)| Step::Meddle { client, command }),
        7 => client().prop_map(Step::HangUp),
        7 => disturbance(),
        4 => world(),
    ]
}

fn ask() -> impl Strategy<Value = Step> {
    let way = prop_oneof![24 => Just(Way::Plain), 1 => Just(Way::Transaction), 1 => Just(Way::Script)];
    // Mostly a client's own name; sometimes another's, as when a request was sent twice.
    let identity = prop_oneof![12 => Just(None), 1 => client().prop_map(Some)];
    (client(), door(), identity, verb(), way).prop_map(|(client, door, other, mut verb, way)| {
        if let (Verb::Take(take), Way::Script) = (&mut verb, way) {
            take.session = false;
        }
        let identity = Identity::from(other.unwrap_or(client));
        Step::Ask { client, request: Request { door, identity, verb }, way }
    })
}

fn verb() -> impl Strategy<Value = Verb> {
    let lease = || 1i64..400;
    let hold = || weighted(0.3, 1i64..4);
    prop_oneof![
        12 => take(Form::Mutex),
        5 => take(Form::Reentrant),
        5 => (hold(), weighted(0.2, lease())).prop_map(|(hold, lease)| Verb::Release { hold, lease }),
        1 => (lease(), any::<bool>()).prop_map(|(lease, add)| Verb::Extend { lease, add }),
        1 => Just(Verb::Fence),
        1 => prop_oneof![Just(Verb::Info), Just(Verb::Waiters)],
        1 => any::<u8>().prop_map(Verb::Nonsense),
    ]
}

fn take(form: Form) -> impl Strategy<Value = Verb> {
    let lease = weighted(0.9, 1i64..400);
    let block = weighted(0.85, prop_oneof![1 => Just(0i64), 3 => 1i64..2000]);
    (lease, block, weighted(0.1, Just(())), weighted(0.3, 1i64..4), weighted(0.25, 100i64..600)).prop_map(
        move |(lease, block, strict, hold, session)| {
            let strict = strict.is_some() && form == Form::Mutex;
            let hold = hold.filter(|_| form == Form::Reentrant);
            Verb::Take(Take { form, lease: session.or(lease), block, strict, hold, session: session.is_some() })
        },
    )
}

fn meddling() -> impl Strategy<Value = Meddling> {
    let identity = || Identity::from(CLIENTS)..Identity::from(CLIENTS) + 3;
    prop_oneof![
        8 => door().prop_map(Meddling::Delete),
        3 => (door(), identity(), weighted(0.7, 1u16..200))
            .prop_map(|(door, identity, lease)| Meddling::Set { door, identity, lease }),
        1 => (door(), identity(), 0u8..3).prop_map(|(door, identity, holds)| Meddling::SetHash { door, identity, holds }),
        1 => door().prop_map(Meddling::Push),
        3 => (door(), -5i16..150).prop_map(|(door, ms)| Meddling::Expire { door, ms }),
        1 => door().prop_map(Meddling::Persist),
        2 => (door(), door()).prop_map(|(from, to)| Meddling::Rename(from, to)),
        1 => (door(), door()).prop_map(|(from, to)| Meddling::Copy(from, to)),
        1 => (door(), 0u8..2).prop_map(|(door, db)| Meddling::Move(door, db)),
        1 => Just(Meddling::FlushDb),
        1 => Just(Meddling::FlushAll),
        1 => Just(Meddling::SwapDb),
        1 => Just(Meddling::Reload),
        2 => Just(Meddling::DeleteAll),
    ]
}

fn disturbance() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (client(), client()).prop_map(|(client, victim)| Step::Kill { client, victim }),
        3 => (client(), client(), any::<bool>())
            .prop_map(|(client, victim, with_error)| Step::Unblock { client, victim, with_error }),
        2 => client().prop_map(Step::Quit),
        1 => (client(), 0u8..2).prop_map(|(client, db)| Step::Select { client, db }),
        3 => (1u8..4).prop_map(Step::Expire),
    ]
}

fn world() -> impl Strategy<Value = Step> {
    let change = prop_oneof![2 => Just(Change::Nothing), 1 => Just(Change::NoReplicas), 1 => Just(Change::Replaced)];
    let fence =
        prop_oneof![3 => Just(None), 1 => Just(Some(WriteFence::NoReplicas)), 1 => Just(Some(WriteFence::Disk))];
    let fate = prop_oneof![2 => Just(SlotFate::Leaves), 1 => Just(SlotFate::Migrates), 3 => Just(SlotFate::Returns)];
    prop_oneof![
        3 => (1u16..3000, change).prop_map(|(ms, change)| Step::Stall { ms, change }),
        1 => (-300i16..300).prop_map(Step::StepClock),
        3 => (1u16..300).prop_map(Step::Pause),
        3 => fence.prop_map(Step::Fence),
        3 => (1u8..20).prop_map(Step::Replicate),
        2 => any::<bool>().prop_map(|planned| Step::FailOver { planned }),
        1 => Just(Step::Restart),
        1 => prop_oneof![Just(Step::Limit(4)), Just(Step::Limit(u8::MAX))],
        3 => (door(), fate).prop_map(|(door, fate)| Step::Slot { door, fate }),
        1 => any::<bool>().prop_map(Step::ClusterDown),
    ]
}
