//! A job that one of several processes does: leader election.
//!
//! Start it twice and stop the first one: the second takes over. `cargo run --example cron_leader -- web-1 [URL]`

use std::env;
use std::time::Duration;

use redis_lock_client::{Error, Guard, Locks, redis};
use tokio::time::{MissedTickBehavior, interval};

/// Does the job at each tick, until the lock is lost or the process is asked to end.
async fn lead(guard: Guard) -> Result<(), Error> {
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // Another process leads now: this one stops before it does more.
            () = guard.lost() => return Err(Error::Lost("leader".to_owned())),
            // Resigns, so that the next process leads immediately.
            _ = tokio::signal::ctrl_c() => return guard.release().await,
            _ = ticks.tick() => println!("does the job, with fencing token {}", guard.fence().await?),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "web-1".to_owned());
    let url = arguments.next().unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let locks = Locks::new(redis::Client::open(url)?).await?;
    let mut leaders = locks.observe("leader");
    tokio::spawn(async move {
        while let Ok(leader) = leaders.next().await {
            println!("the leader is {}", leader.as_deref().unwrap_or("unknown"));
        }
    });
    loop {
        println!("{name} is a candidate");
        // The server frees the lock when this process has ended, however it ends.
        let election = locks.lock("leader").lease(Duration::from_secs(5)).session().label(name.as_str());
        let guard = tokio::select! {
            guard = election.acquire() => guard?,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        println!("{name} leads");
        match lead(guard).await {
            Ok(()) => return Ok(()),
            Err(error) => println!("{name} leads no more: {error}"),
        }
    }
}
