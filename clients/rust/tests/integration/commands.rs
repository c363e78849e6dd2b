//! A call for each command. The site shows them on the page of the command: from such a comment to the next empty line.

use std::time::Duration;

use redis_lock_client::Error;

use crate::{is_free, started};

#[tokio::test]
async fn commands_have_calls() -> Result<(), Error> {
    let (server, locks) = started().await;
    // LOCK.ACQUIRE
    let lock = locks.lock("door").lease(Duration::from_secs(30)).wait(Duration::from_secs(20));
    let guard = lock.acquire().await?;

    // LOCK.FENCE
    let number = guard.fence().await?;

    // LOCK.EXTEND
    guard.extend(Duration::from_secs(60)).await?;

    // LOCK.RELEASE
    guard.release().await?;

    // LOCK.REENTER
    let outer = locks.lock("cellar").reentrant("job-17").acquire().await?;
    let inner = locks.lock("cellar").reentrant("job-17").acquire().await?;

    // LOCK.SHARE
    let reader = locks.lock("page").shared().acquire().await?;
    let permit = locks.lock("printers").permits(3).acquire().await?;

    assert!(number > 0);
    for guard in [inner, outer, reader, permit] {
        guard.release().await?;
    }
    assert!(["door", "cellar", "page", "printers"].iter().all(|name| is_free(&server, name)));
    Ok(())
}
