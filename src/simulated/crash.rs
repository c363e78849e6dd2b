//! The crash of a server.

/// Ends the server. The simulation calls this where a real server would crash, hang or replicate wrong data.
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
