use std::thread;

use redis_lock_client::{Error, blocking, redis};
use support::{Server, Setup};

use crate::{is_free, ms};

fn started() -> (Server, blocking::Locks) {
    let server = Setup::new().start();
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", server.port())).expect("an address");
    (server, blocking::Locks::new(client).expect("a server that replies"))
}

#[test]
fn threads_exclude_each_other() {
    let (server, locks) = started();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let guard = locks.lock("door").acquire().expect("a turn");
                    let held = server.client().run("INCR inside");
                    assert_eq!(held, support::Reply::Int(1));
                    server.ask("DECR inside");
                    guard.release().expect("a lock that is held");
                }
            });
        }
    });
    assert!(is_free(&server, "door"));
}

#[test]
fn options_and_errors_are_those_of_the_tasks() {
    let (_server, locks) = started();
    let guard = locks.lock("door").lease(ms(5000)).label("job").acquire().expect("a free lock");
    guard.extend(ms(9000)).expect("a lock that is held");
    assert!(guard.fence().expect("a number") > 0 && !guard.is_lost());
    let error = locks.lock("door").wait(ms(50)).acquire().expect_err("a held lock");
    assert!(matches!(error, Error::Timeout(_)));
}

#[test]
fn last_guard_releases_before_its_thread_ends() {
    let (server, locks) = started();
    let guard = locks.lock("door").acquire().expect("a free lock");
    drop(locks);
    drop(guard);
    assert!(is_free(&server, "door"));
}
