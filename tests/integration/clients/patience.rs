//! Real client libraries wait for much longer than their own time-outs, or share a connection among tasks. A file of its own,
//! because it takes its time.

use support::{Server, python};

#[test]
fn redis_py_with_default_settings_waits_20_s_and_keeps_its_place() {
    python::run_script(&Server::start(), "patient_with_default_settings.py");
}

#[test]
fn redis_py_waits_20_s_in_slices_and_keeps_its_place() {
    python::run_script(&Server::start(), "patient_in_slices.py");
}

#[test]
fn who_is_held_up_by_a_wait_with_coredis_and_glide_and_how_it_ends() {
    python::run_script(&Server::start(), "tasks.py");
}
