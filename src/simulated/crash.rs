//! The end of a server.

/// Ends the server, which is the simulation's way to say that a real one would crash, hang, or tell its replicas something
/// wrong.
///
/// # Panics
/// Always.
#[cold]
#[track_caller]
pub(super) fn crash(why: &str) -> ! {
    #[expect(clippy::panic, reason = "what a module must never do is to be found where it is done")]
    {
        panic!("the server ends: {why}")
    }
}
