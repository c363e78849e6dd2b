//! Locks that no request touches while capacity becomes free for another reason, so the module has to notice it by
//! itself.

use std::time::{Duration, Instant};

use support::Reply;

use crate::evidence::since_now;
use crate::link::PATIENCE;
use crate::run::Run;

const CHECK: &str = "quiet locks";
/// The longest time for the reply on a server that does not stall.
const SLACK: Duration = Duration::from_millis(250);
const LEASE_MS: u64 = 3000;
/// How long the requests take to wait: shorter than their BLOCK.
const QUEUED: Duration = Duration::from_millis(1250);

const HOLDERS: [&str; 2] = ["LOCK.SHARE KEY a PX 3000 LIMIT 2", "LOCK.SHARE KEY b PX 3000 LIMIT 2"];
const WRITER: &str = "LOCK.ACQUIRE KEY c PX 50 BLOCK 2500";
const READER: &str = "LOCK.SHARE KEY d PX 50 LIMIT 2 BLOCK 2500";

/// What frees capacity for the reader: the number of holders, and the command. A lock with one holder has the writer as
/// its first waiter, which closes its connection if there is no command.
const CAUSES: [(usize, &str); 5] =
    [(2, "ZREM KEY a"), (2, "ZPOPMAX KEY"), (2, "ZREMRANGEBYRANK KEY 0 0"), (1, "LOCK.RELEASE KEY c"), (1, "")];

pub fn run_quiet_locks(run: &Run, mut random: fastrand::Rng) {
    for number in 0_u32.. {
        run.rest(Duration::from_millis(random.u64(20..300)));
        if !run.goes_on() {
            return;
        }
        play(run, &format!("q{number}"), CAUSES[random.usize(..CAUSES.len())]);
    }
}

/// Lets a request wait, frees capacity for it, and checks that it is granted; `None` if a connection was closed, or the
/// settings do not allow it.
fn play(run: &Run, key: &str, (holders, frees): (usize, &str)) -> Option<()> {
    let begun = Instant::now();
    let line = |text: &str| text.replace("KEY", key);
    let connect = || run.connect(0, false);
    let (mut holder, mut writer, mut reader) = (connect()?, connect()?, connect()?);
    run.allows_lease(LEASE_MS, begun).then_some(())?;
    HOLDERS[..holders].iter().all(|hold| holder.run(&line(hold)) == 1).then_some(())?;
    let writers = i64::from(holders == 1);
    if writers > 0 {
        writer.send(&[line(WRITER)])?;
        run.within(QUEUED, || holder.has_waiters(key, 1)).then_some(())?;
    }
    reader.send(&[line(READER)])?;
    run.within(QUEUED, || holder.has_waiters(key, writers + 1)).then_some(())?;
    if frees.is_empty() {
        drop(writer);
    } else {
        (holder.run(&line(frees)) != Reply::Closed).then_some(())?;
    }
    let freed = since_now();
    let reply = reader.receive(PATIENCE)?;
    let evidence = &run.evidence;
    let is_changed = evidence.flushes.any_since(begun) || evidence.changes.any_since(begun);
    let is_disturbed = is_changed || evidence.may_suspend(begun, Instant::now()) || run.is_refusal(&reply);
    (reply != Reply::Closed && !is_disturbed).then(|| run.counters.count(CHECK))?;
    let late = evidence.stalls.late(freed, SLACK);
    // The time of its BLOCK can be up when the server goes on.
    let is_explained = reply == 1 || reply == Reply::Nil && freed.0.elapsed() > SLACK;
    if !is_explained || late.is_some() {
        run.fails("capacity of a lock is noticed within 250 ms", format!("{key}, {frees:?}: {reply:?}, {late:?}"));
    }
    holder.run(&line("DEL KEY"));
    Some(())
}
