//! The task of a lock that is watched: it renews the lease, continues the session, and finds out that the lock is lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::{Instant, sleep_until, timeout_at};

use crate::Error;
use crate::claim::{Claim, Form, Request};
use crate::core::{Core, RETRY};
use crate::redis::{Value, cmd};

/// Watches a lock until it is lost. The release of the lock aborts it.
pub(crate) async fn watch(core: Arc<Core>, claim: Arc<Claim>) {
    let (mut changes, mut term) = (core.server.events.read(&claim.request.key), claim.term.subscribe());
    let mut renew_at = Instant::now() + claim.lease() / 3;
    loop {
        let end = term.borrow_and_update().end;
        let pause = match timeout_at(end, look(&core, &claim, &mut renew_at)).await {
            Ok(Ok(true)) => claim.lease() / 3,
            Ok(Err(error)) if error.may_pass() => RETRY,
            Ok(Err(error)) if !error.is_not_held() => claim.lease() / 3,
            // Not held, or no reply before the end of the lease.
            Ok(_) | Err(_) => break,
        };
        let look_at = Instant::now() + pause;
        loop {
            let end = term.borrow_and_update().end;
            tokio::select! {
                _ = changes.next() => break,
                () = sleep_until(look_at.min(end)) => break,
                // The holder has extended the lease.
                _ = term.changed() => {}
            }
        }
        if claim.is_lost() {
            break;
        }
    }
    tracing::debug!(lock = claim.name(), "lost");
    claim.lose();
}

/// Renews the lease if it is time, and asks for the holder. Returns whether it is the claim.
async fn look(core: &Core, claim: &Claim, renew_at: &mut Instant) -> Result<bool, Error> {
    let Request { has_session, is_renewed, form, .. } = &claim.request;
    let at = Instant::now();
    let is_cut = claim.session_since.load(Ordering::SeqCst) != core.server.events.disconnections();
    if *has_session && is_cut {
        // The server keeps the lock for the grace period.
        claim.limit_lease(claim.grace());
    }
    if (*has_session || *is_renewed) && at >= *renew_at || *has_session && is_cut {
        core.ask_twice(claim, claim.extend(claim.lease())).await?;
        claim.set_lease(at, claim.lease());
        *renew_at = at + claim.lease() / 3;
        // The present connection continues the session. Without the command before, this could acquire a lock that is free.
        if *has_session && !core.take(claim).await? {
            return Ok(false);
        }
    }
    // The server reports the next change of the key. Without the right to this, it is seen later.
    let _ = core.call(claim, cmd("CLIENT").arg("TRACKING").arg("ON")).await;
    Ok(match core.call(claim, &claim.read()).await? {
        Value::BulkString(token) if *form == Form::Mutex => token == claim.token.as_bytes(),
        value => value != Value::Nil,
    })
}
