//! What goes on at a server of which nothing is to be said: locks are taken, waited for, given up, and run out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, sleep};
use std::time::Duration;

use support::{Client, Server, Waiter};

/// How many clients contend for one lock, and for how long each holds it. So few that five servers are no load.
const CLIENTS: usize = 3;
const HELD: Duration = Duration::from_millis(20);

/// Has clients work at a server until `over`.
pub fn begin<'s, 'e>(scope: &'s Scope<'s, 'e>, server: &'e Server, over: &'e AtomicBool) {
    for number in 0..CLIENTS {
        scope.spawn(move || until(over, || contend(&mut server.client(), number)));
    }
    scope.spawn(move || {
        let mut holder = server.client();
        assert_eq!(holder.run("LOCK.ACQUIRE vault holder PX 600000"), 1);
        until(over, || each_end(server, &mut holder));
    });
}

fn until(over: &AtomicBool, mut work: impl FnMut()) {
    while !over.load(Ordering::Relaxed) {
        work();
    }
}

fn contend(client: &mut Client, number: usize) {
    if client.run(&format!("LOCK.ACQUIRE desk {number} PX 5000 BLOCK 2000")) == 1 {
        sleep(HELD);
        client.run(&format!("LOCK.RELEASE desk {number}"));
    }
    sleep(HELD);
}

/// A wait that ends by each cause.
fn each_end(server: &Server, holder: &mut Client) {
    let mut other = server.client();
    other.run("LOCK.ACQUIRE vault other BLOCK 20");
    holder.run("LOCK.ACQUIRE lamp holder PX 20");
    other.run("LOCK.ACQUIRE lamp other PX 20 BLOCK 2000");
    let Ok(mut waiter) = waiting(server, holder, "LOCK.ACQUIRE chair") else { return };
    holder.run("DEL chair");
    waiter.reply();
    holder.run("DEL chair");
    let session = "LOCK.ACQUIRE table session PX 5000 SESSION";
    let mut owner = server.client();
    owner.run(session);
    let mut next = Waiter::send(server, "LOCK.ACQUIRE table next PX 100 BLOCK 2000");
    drop(owner);
    next.reply();
}

/// Somebody who waits for a lock that `holder` has; Err if the server lets nobody wait now.
fn waiting(server: &Server, holder: &mut Client, command: &str) -> Result<Waiter, ()> {
    holder.run(&format!("{command} holder PX 5000"));
    let waiter = Waiter::send(server, &format!("{command} waiter PX 5000 BLOCK 2000"));
    if waiter.becomes_blocked() { Ok(waiter) } else { Err(()) }
}
