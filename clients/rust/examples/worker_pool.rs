//! Workers of which three work at a time, in all processes together. `cargo run --example worker_pool -- [URL]`

use std::env;
use std::time::{Duration, Instant};

use redis_lock_client::{Error, Locks, redis};
use tokio::task::JoinSet;
use tokio::time::sleep;

const PERMITS: u32 = 3;

async fn work(locks: Locks, number: u32, began_at: Instant) -> Result<(), Error> {
    // The work is dropped, and the permit is free, if the permit is lost.
    let permit = locks.lock("printers").permits(PERMITS).lease(Duration::from_secs(10)).renew();
    permit
        .with(async |_permit| {
            println!("{:4} ms: worker {number} prints", began_at.elapsed().as_millis());
            sleep(Duration::from_millis(200)).await;
            Ok(())
        })
        .await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let locks = Locks::new(redis::Client::open(url)?).await?;
    let (mut workers, began_at) = (JoinSet::new(), Instant::now());
    for number in 0..12 {
        workers.spawn(work(locks.clone(), number, began_at));
    }
    while let Some(result) = workers.join_next().await {
        result??;
    }
    Ok(())
}
