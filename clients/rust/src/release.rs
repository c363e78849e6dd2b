//! How a lock is released, or a request for it withdrawn, until the server has replied.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::Error;
use crate::claim::Claim;
use crate::core::{Core, MAX_BLOCK, RETRY};
use crate::redis::Value;

/// A server may execute a request of a lost connection for so long.
pub(crate) const AFTERMATH: Duration = Duration::from_secs(1);

/// Where the result of a release goes, if its caller waits for it.
pub(crate) type Answer = oneshot::Sender<Result<(), Error>>;

/// Ends the tasks of a claim, and sends RELEASE until the server has replied or the lease has expired.
pub(crate) async fn release(core: Arc<Core>, claim: Arc<Claim>, mut tasks: JoinSet<()>, mut answer: Option<Answer>) {
    // They may be about to send a request, and must not do so after the release.
    tasks.shutdown().await;
    if !claim.is_armed.load(Ordering::SeqCst) {
        // It was not asked for, or its token has been handed over.
        answer.map(|answer| answer.send(Ok(())));
        return;
    }
    let until = Instant::now() + MAX_BLOCK + claim.lease();
    let disconnections = core.server.events.disconnections();
    let mut may_come_late = claim.unanswered.load(Ordering::SeqCst) > 0;
    for attempt in 0.. {
        let reply = core.ask(&claim, &claim.release()).await.map_err(Error::for_holder);
        let result = match reply {
            // An earlier one may have released it, although its reply was lost.
            Ok(Value::Nil) | Err(Error::Lost(_)) if core.server.events.disconnections() != disconnections => Ok(()),
            // The token held nothing.
            Ok(Value::Nil) => Err(Error::Lost(claim.request.name())),
            reply => reply.map(|_| ()),
        };
        let may_pass = result.as_ref().is_err_and(Error::may_pass);
        if attempt > 0 || !may_pass {
            tracing::debug!(lock = claim.request.name(), ?result, "released");
            answer.take().map(|answer| answer.send(result));
        }
        if may_pass && Instant::now() < until {
            // There may be thousands of these during an outage.
            sleep(RETRY * attempt.clamp(1, 10)).await;
        } else if may_come_late {
            may_come_late = false;
            sleep(AFTERMATH).await;
        } else {
            return;
        }
    }
}
