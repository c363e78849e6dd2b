//! The real client library waits for much longer than its own time-out. A file of its own, because it takes its time.

use support::{Server, python};

#[test]
fn redis_py_with_default_settings_waits_20_s_and_keeps_its_place() {
    python::run_script(&Server::start(), "patient_with_default_settings.py");
}

#[test]
fn redis_py_waits_20_s_in_slices_and_keeps_its_place() {
    python::run_script(&Server::start(), "patient_in_slices.py");
}
