//! A client that never stops asking for a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use support::{Client, Reply, Server, Waiter, eventually};

/// `names` wait for `door` in this order, each by its own name as the token.
#[track_caller]
fn line_up(server: &Server, names: &[&str]) -> Vec<Waiter> {
    let lines: Vec<String> = names.iter().map(|name| format!("LOCK.ACQUIRE door {name} BLOCK 0")).collect();
    lines.iter().map(|line| Waiter::start(server, line)).collect()
}

/// Asks for the lock without waiting until it gets it, and counts in `asked` how often it did not.
fn hammer(mut client: Client, asked: &AtomicU64) {
    while client.run("LOCK.ACQUIRE door hammer") == Reply::Nil {
        asked.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn client_that_never_stops_asking_overtakes_no_waiter() {
    const WAITERS: usize = 30;
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.ACQUIRE door holder"), 1);
    let names: Vec<String> = (0..WAITERS).map(|number| format!("waiter-{number}")).collect();
    let mut waiters = line_up(&server, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let (client, asked) = (server.client(), AtomicU64::new(0));
    thread::scope(|scope| {
        let hammering = scope.spawn(|| hammer(client, &asked));
        let mut current = "holder";
        for (number, (waiter, name)) in waiters.iter_mut().zip(&names).enumerate() {
            let free = match number % 3 {
                0 => format!("LOCK.RELEASE door {current}"),
                1 => "DEL door".to_owned(),
                _ => "PEXPIRE door 5".to_owned(),
            };
            let before = asked.load(Ordering::SeqCst);
            eventually("it asks again and again", || asked.load(Ordering::SeqCst) > before + 3);
            assert!(!control.run(&free).is_error(), "{free}");
            assert_eq!(waiter.reply(), 1, "{name}");
            assert_eq!(control.run("GET door"), name.as_str());
            assert!(!hammering.is_finished(), "{name} was overtaken");
            current = name;
        }
        assert_eq!(control.run(&format!("LOCK.RELEASE door {current}")), 0);
        hammering.join().expect("the hammering client");
    });
    assert_eq!(control.run("GET door"), "hammer", "the lock came free in the end");
}
