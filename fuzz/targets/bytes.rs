//! Sends any bytes on three connections. The server must not die, must answer other clients, and must forget the
//! disconnected ones.
//!
//! The module in a simulated server gets the same bytes. It gives the fuzzer the coverage, which the fuzzer cannot get
//! from the other process. SERVER is the path of the server, and MODULE is the path of its module.
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
