//! The soak: under full load the memory of the server stays the same.

use std::time::Duration;

use crate::run::Run;

/// The loss of the smallest piece of memory in one request of a thousand, in bytes for each request. A defect that
/// loses memory in each request of some kind loses more.
const MAX_PER_REQUEST: f64 = 16.0 / 1000.0;
/// Pools and tables grow for minutes, in ever rarer and larger steps: bytes that a rise may have for that, as the
/// allocator counts them and as the system does.
const MAX_ONCE: [f64; 2] = [256e3, 1e6];
const EVERY: Duration = Duration::from_secs(1);
const FIGURES: [&str; 2] = ["used_memory", "used_memory_rss"];

/// The requests so far, and the figures of memory at that time.
type Sample = [f64; 3];

pub fn watch_memory(run: &Run, _: fastrand::Rng) {
    let Some(mut link) = run.connect(0, false) else { return };
    let mut samples = Vec::new();
    while run.goes_on() {
        run.rest(EVERY);
        let [Some(used), Some(resident)] = FIGURES.map(|name| link.number("memory", name)) else {
            return run.fails("the server lives", "it does not reply to INFO");
        };
        samples.push([run.counters.of("requests") as f64, used as f64, resident as f64]);
    }
    for (at, name) in FIGURES.iter().enumerate() {
        let (rise, allowed) = rise(&samples, at);
        let text = format!("{name}: {rise:+.0} bytes from the second third of the time to the last, of {allowed:.0}");
        println!("{text}");
        if rise > allowed {
            run.fails("memory stays the same under load", text);
        }
    }
}

/// Returns the rise of a figure from the second third of the samples to the last one, on average, and the allowed rise.
fn rise(samples: &[Sample], figure: usize) -> (f64, f64) {
    let third = samples.len() / 3;
    let mean = |of: &[Sample], at: usize| of.iter().map(|sample| sample[at]).sum::<f64>() / of.len().max(1) as f64;
    let (middle, last) = (&samples[third..2 * third], &samples[2 * third..]);
    let [requests, bytes] = [0, 1 + figure].map(|at| mean(last, at) - mean(middle, at));
    (bytes, MAX_PER_REQUEST * requests + MAX_ONCE[figure])
}

#[test]
fn lasting_rise_is_found_and_early_one_is_not() {
    let of = |bytes: fn(f64) -> f64| {
        let samples: Vec<Sample> = (0..900).map(|n| f64::from(n) * 30e3).map(|n| [n, bytes(n), 0.0]).collect();
        let (rise, allowed) = rise(&samples, 0);
        rise > allowed
    };
    assert!(of(|requests| 0.1 * requests));
    assert!(!of(|requests| 0.1 * requests.min(5e6)) && !of(|requests| 1e6 + requests % 7.0));
}
