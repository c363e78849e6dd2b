//! A test that does not allow bugs fails if the module catches a panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use support::{Server, Setup};

/// Starts a server whose module has caught a panic in LOCK.INFO.
fn server_after_panic(setup: &Setup) -> Server {
    let server = setup.start();
    let mut client = server.client();
    assert_eq!(client.run("FAILPOINT lock.info 0"), 1);
    assert!(client.run("LOCK.INFO door").is_error());
    server
}

#[test]
fn caught_panic_fails_test() {
    let server = server_after_panic(&Setup::new().with_failpoints());
    let panic = catch_unwind(AssertUnwindSafe(|| drop(server))).expect_err("the server's end fails the test");
    let complaint = panic.downcast_ref::<String>().expect("a message");
    assert!(complaint.starts_with("the log says"), "{complaint}");
}

#[test]
fn allowed_panic_does_not_fail_test() {
    drop(server_after_panic(&Setup::new().with_failpoints().allow_bugs()));
}
