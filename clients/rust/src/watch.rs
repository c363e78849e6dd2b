//! The task of a lock that is watched: it renews the lease, continues the session, and finds out that the lock is lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::{Instant, sleep};
use tokio_util::sync::DropGuard;

use crate::Error;
use crate::claim::{Claim, Form, GRACE};
use crate::core::{Core, RETRY};
use crate::redis::{Value, cmd};

/// A lease is renewed when this part of it has passed.
pub(crate) const RENEWALS: u32 = 3;

/// Watches a lock until it is lost, and reports the loss. The release of the lock aborts it. A lock that nothing watches any
/// more counts as lost, also if the runtime has ended.
pub(crate) async fn watch(core: Arc<Core>, claim: Arc<Claim>, _loss: DropGuard) {
    tokio::select! {
        () = claim.ended() => {}
        () = keep(&core, &claim) => {}
    }
    tracing::debug!(lock = claim.request.name(), "lost");
}

/// Keeps the lock until the server says that the claim does not hold it.
async fn keep(core: &Core, claim: &Claim) {
    let (mut changes, mut term) = (core.server.events.read(&claim.request.key), claim.term.subscribe());
    loop {
        let outcome = look(core, claim).await.map_err(Error::for_holder);
        let lease = term.borrow_and_update().length;
        let pause = match outcome {
            Ok(false) | Err(Error::Lost(_)) => return,
            Err(error) if error.may_pass() => RETRY,
            Ok(true) | Err(_) => lease / RENEWALS,
        };
        tokio::select! {
            _ = changes.next() => {}
            // The holder has set another lease.
            _ = term.changed() => {}
            () = sleep(pause) => {}
        }
    }
}

/// Renews the lease if it is time, and asks for the holder. Returns whether it is the claim.
async fn look(core: &Core, claim: &Claim) -> Result<bool, Error> {
    let request = &claim.request;
    let since = claim.session_since.load(Ordering::SeqCst);
    let is_cut = request.has_session && since != core.server.events.disconnections();
    if is_cut {
        // The server keeps the lock for the grace period.
        claim.limit_lease(GRACE);
    }
    let (at, lease) = (Instant::now(), claim.lease());
    let is_due = (request.has_session || request.is_renewed) && claim.term.borrow().end < at + lease - lease / RENEWALS;
    if is_cut || is_due {
        core.ask(claim, &claim.extend(lease)).await?;
        claim.set_lease(at, lease);
        // The present connection continues the session. Without the command before, this could acquire a lock that is free.
        if request.has_session && core.request(claim, &claim.ask(None)).await? == Value::Nil {
            return Ok(false);
        }
    }
    // The server reports the next change of the key. Without the right to this, it is seen later.
    let _ = core.call(claim, cmd("CLIENT").arg("TRACKING").arg("ON")).await;
    Ok(match core.call(claim, &claim.read()).await? {
        Value::BulkString(token) if request.form == Form::Mutex => token == claim.token.as_bytes(),
        value => value != Value::Nil,
    })
}
