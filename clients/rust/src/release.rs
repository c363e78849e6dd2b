//! How a lock is released, or a request for it withdrawn, until the server has replied.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::Error;
use crate::claim::Claim;
use crate::core::{Core, MAX_BLOCK, RETRY};

/// A server may execute a request of a lost connection for so long.
const AFTERMATH: Duration = Duration::from_secs(1);

/// Where the result of a release goes, if its caller waits for it.
pub(crate) type Answer = Option<oneshot::Sender<Result<(), Error>>>;

/// A release that is not done. It keeps the connection open.
pub(crate) struct Release {
    core: Arc<Core>,
    claim: Arc<Claim>,
    watcher: Option<JoinHandle<()>>,
    reply: Answer,
}

impl Release {
    pub(crate) fn new(core: &Arc<Core>, claim: &Arc<Claim>, watcher: Option<JoinHandle<()>>, reply: Answer) -> Self {
        core.releases.send_modify(|releases| *releases += 1);
        Self { core: core.clone(), claim: claim.clone(), watcher, reply }
    }

    /// Has the connection task start it. Works in any thread, and does nothing if the runtime has ended.
    pub(crate) fn order(self) {
        let orders = self.core.orders.clone();
        let _ = orders.send(self);
    }

    /// Starts it.
    pub(crate) fn start(self) {
        let runtime = self.core.runtime.clone();
        runtime.spawn(self.run());
    }

    /// Sends RELEASE until the server has replied or the lease has expired.
    async fn run(mut self) {
        if let Some(watcher) = self.watcher.take() {
            // It may be about to continue a session, and must not do so after the release.
            watcher.abort();
            let _ = watcher.await;
        }
        let (core, claim) = (self.core.clone(), self.claim.clone());
        let until = Instant::now() + MAX_BLOCK + claim.lease();
        let mut may_come_late = claim.has_unanswered();
        for attempt in 0.. {
            let outcome = core.ask(&claim, claim.release()).await;
            let may_pass = outcome.as_ref().is_err_and(Error::may_pass);
            if attempt > 0 || !may_pass {
                let result = match outcome {
                    // An earlier one has released it, although its reply was lost.
                    Err(error) if attempt > 0 && error.is_not_held() => Ok(()),
                    outcome => outcome.map(|_| ()).map_err(Error::for_holder),
                };
                tracing::debug!(lock = claim.name(), ?result, "released");
                self.reply.take().map(|reply| reply.send(result));
            }
            if may_pass && Instant::now() < until {
                sleep(RETRY).await;
            } else if may_come_late {
                may_come_late = false;
                sleep(AFTERMATH).await;
            } else {
                break;
            }
        }
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        self.core.releases.send_modify(|releases| *releases -= 1);
    }
}
