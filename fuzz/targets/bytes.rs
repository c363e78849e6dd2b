//! Whatever bytes arrive on three connections, a server lives, answers others, and forgets those who have left.
//!
//! The module in a simulated server gets the same, so that the fuzzer sees what is new about them: it cannot look into the
//! other one, which SERVER names, with the module that MODULE names.
#![no_main]

use std::sync::{LazyLock, Mutex};

use fuzz::live::Live;
use fuzz::parts;
use libfuzzer_sys::fuzz_target;

static LIVE: LazyLock<Mutex<Live>> = LazyLock::new(|| Mutex::new(Live::start()));

fuzz_target!(|bytes: &[u8]| {
    let parts = parts::of(bytes);
    fuzz::simulated::feed(&parts);
    LIVE.lock().expect("one thread").feed(&parts);
});
