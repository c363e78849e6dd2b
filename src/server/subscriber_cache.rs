//! What is known of a channel in this round of the server's loop.

use super::main_thread::MainThread;

/// The channel that was found to have a subscriber in this round, or nothing.
static CHANNEL: MainThread<Vec<u8>> = MainThread::new(Vec::new());

/// Returns whether the channel was found to have a subscriber in this round.
pub(super) fn has_subscriber(channel: &[u8]) -> bool {
    CHANNEL.with(|subscriber_cache| !subscriber_cache.is_empty() && subscriber_cache.as_slice() == channel)
}

/// Records that a channel has a subscriber.
pub(super) fn remember(channel: &[u8]) {
    CHANNEL.with(|subscriber_cache| {
        subscriber_cache.clear();
        subscriber_cache.extend_from_slice(channel);
    });
}

/// Gives the memory back, when the module is unloaded.
pub(super) fn clear() {
    CHANNEL.replace(Vec::new());
}

/// Forgets what is known, at the end of a round.
pub(super) fn forget() {
    CHANNEL.with(Vec::clear);
}
