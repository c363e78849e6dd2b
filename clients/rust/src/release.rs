//! How a lock is released, or a request for it withdrawn, until the server has replied.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::Error;
use crate::core::{Core, MAX_BLOCK, RETRY};
use crate::hold::{Hold, State};
use crate::queues::Releasing;
use crate::server::{Reply, patience};

/// A server may execute a request of a lost connection for so long.
pub(crate) const AFTERMATH: Duration = Duration::from_secs(1);

/// Sends RELEASE for a hold in a state, again if it may succeed in a moment. Returns the result, and whether no later release is needed.
pub(crate) async fn release(core: &Core, hold: &Hold, state: State) -> Result<(Result<(), Error>, bool), Error> {
    let (until, before) = (patience(), core.server.events.disconnections());
    let mut outcome = send(core, hold, before, until).await;
    if outcome.0.as_ref().is_err_and(Error::may_pass) && Instant::now() + RETRY < until {
        sleep(RETRY).await;
        outcome = send(core, hold, before, until).await;
    }
    let (result, connection) = outcome;
    let is_over = is_over(core, state, &result, connection);
    Ok((result, is_over))
}

/// Returns whether a result needs no later release. A node that is about to hand over a slot may not know the lock.
fn is_over(core: &Core, state: State, result: &Result<(), Error>, connection: u64) -> bool {
    let is_known = match result {
        Err(Error::Lost(_)) => !core.server.is_cluster(),
        Err(error) => !error.may_pass(),
        Ok(()) => true,
    };
    is_known && state.is_over_after(connection)
}

async fn send(core: &Core, hold: &Hold, before: u64, until: Instant) -> (Result<(), Error>, u64) {
    let reply = core.ask(hold, &hold.request.release(&hold.token), until).await.map_err(Error::for_holder);
    let connection = core.server.events.disconnections();
    let result = match reply {
        // An earlier one may have released it, although its reply was lost.
        Ok(Reply::Nil) | Err(Error::Lost(_)) if connection != before => Ok(()),
        // The token held nothing.
        Ok(Reply::Nil) => Err(Error::Lost(hold.request.name())),
        reply => reply.map(|_| ()),
    };
    tracing::debug!(lock = hold.request.name(), ?result, "released");
    (result, core.server.in_order(connection))
}

/// Sends RELEASE for a hold in a state, until the server has replied or the lease has expired.
pub(crate) async fn release_later(core: Arc<Core>, hold: Arc<Hold>, state: State, releasing: Releasing) {
    let (mut releasing, mut is_repeated) = (Some(releasing), false);
    let (until, before) = (Instant::now() + MAX_BLOCK + hold.term().1, core.server.events.disconnections());
    for attempt in 1.. {
        let (result, connection) = send(&core, &hold, before, patience()).await;
        drop(releasing.take());
        if result.as_ref().is_err_and(Error::may_pass) && Instant::now() < until {
            // There may be thousands of these during an outage.
            sleep(RETRY * attempt.min(10)).await;
        } else if is_repeated || is_over(&core, state, &result, connection) {
            return;
        } else {
            is_repeated = true;
            sleep(AFTERMATH).await;
        }
    }
}
