//! What is known of a channel in this round of the server's loop.

use super::main_thread::MainThread;

/// The channel that was found to have a subscriber in this round, or nothing.
static HEARD: MainThread<Vec<u8>> = MainThread::new(Vec::new());

/// Returns whether the channel was found to have a subscriber in this round.
pub(super) fn is_heard(channel: &[u8]) -> bool {
    HEARD.with(|heard| !heard.is_empty() && heard.as_slice() == channel)
}

/// Records that a channel has a subscriber.
pub(super) fn remember(channel: &[u8]) {
    HEARD.with(|heard| {
        heard.clear();
        heard.extend_from_slice(channel);
    });
}

/// Gives the memory back, when the module is unloaded.
pub(super) fn clear() {
    HEARD.replace(Vec::new());
}

/// Forgets what is known, at the end of a round.
pub(super) fn forget() {
    HEARD.with(Vec::clear);
}
