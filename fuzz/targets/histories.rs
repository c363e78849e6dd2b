//! The contract holds in every history of simulated servers.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use simulator::play::Play;
use simulator::strategy::{STEP_LEN, history_from};

fuzz_target!(|bytes: &[u8]| {
    let history = history_from(bytes);
    if let Err(why) = Play::new(&history, false).run() {
        panic!("{why}\n{history:?}");
    }
});

// Half of the mutations move whole steps. The library alone would shift all later steps.
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut random = fastrand::Rng::with_seed(seed.into());
    let steps = size / STEP_LEN;
    if random.bool() || steps < 2 {
        return fuzzer_mutate(data, size, max_size);
    }
    let place = |number: usize| number * STEP_LEN..(number + 1) * STEP_LEN;
    let (one, other) = (random.usize(..steps), random.usize(..steps));
    match random.u8(..4) {
        0 => random.fill(&mut data[place(one)]),
        1 => data.copy_within(place(one), place(other).start),
        2 if size + STEP_LEN <= max_size => {
            data.copy_within(place(one).start..size, place(one).end);
            data.copy_within(place(other), place(one).start);
            return size + STEP_LEN;
        }
        _ => {
            data.copy_within(place(one).end..size, place(one).start);
            return size - STEP_LEN;
        }
    }
    size
});
