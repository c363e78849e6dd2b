use std::cell::RefCell;
use std::thread;
use std::time::Instant;

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

#[test]
fn work_runs_with_the_lock_which_is_free_after_it() {
    let (server, locks) = started();
    let token = locks.lock("door").with(|guard| Ok::<_, Error>(guard.token().to_owned())).expect("work");
    assert!(token.len() == 32 && is_free(&server, "door"));
    let failed = locks.lock("door").with(|_| Err::<(), _>(Error::Timeout("work".to_owned())));
    assert!(matches!(failed, Err(Error::Timeout(name)) if name == "work"));
    assert!(is_free(&server, "door"));
}

#[test]
fn token_is_handed_over_and_loss_is_reported() {
    let (server, locks) = started();
    let token = locks.lock("door").lease(ms(30_000)).acquire().expect("a free lock").detach();
    let guard = locks.lock("door").lease(ms(30_000)).attach(token).expect("a lock that is held");
    assert!(guard.name() == "door" && guard.remaining() > ms(20_000) && !guard.lost(ms(50)));
    server.ask("DEL door");
    assert!(guard.lost(ms(900)) && guard.is_lost());
    locks.close(ms(1000));
}

#[test]
fn dropped_guard_is_released_before_the_next_line() {
    let (server, locks) = started();
    for _ in 0..50 {
        drop(locks.lock("door").acquire().expect("a free lock"));
        assert!(is_free(&server, "door"));
    }
    // In an async task it must not wait.
    let guard = locks.lock("door").acquire().expect("a free lock");
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async { drop(guard) });
    locks.close(ms(1000));
    assert!(is_free(&server, "door"));
}

#[test]
fn guard_dropped_at_a_silent_server_waits_5_s() {
    let (server, locks) = started();
    let guard = locks.lock("door").acquire().expect("a free lock");
    server.ask("CLIENT PAUSE 30000 ALL");
    let began_at = Instant::now();
    drop(guard);
    assert!((4500..5800).contains(&began_at.elapsed().as_millis()), "{:?}", began_at.elapsed());
    drop(locks);
    assert!(began_at.elapsed() < ms(7000), "{:?}", began_at.elapsed());
}

#[cfg(feature = "cluster")]
#[test]
fn threads_share_a_cluster() {
    let cluster = support::cluster::Cluster::start(5000, "");
    let url = format!("redis://127.0.0.1:{}", cluster.master(0).port());
    let locks = blocking::Locks::new(redis::cluster::ClusterClientBuilder::new([url])).expect("a cluster");
    for number in 0..3 {
        let name = cluster.tag_of(number).key("door");
        let guard = locks.lock(&name).acquire().expect("a free lock");
        assert_eq!(cluster.master(number).ask(&format!("GET {name}")), guard.token());
    }
}

#[test]
fn guard_in_a_thread_local_is_released() {
    thread_local!(static GUARD: RefCell<Option<blocking::Guard>> = const { RefCell::new(None) });
    let (server, locks) = started();
    let [first, last] = [locks.clone(), locks];
    for locks in [first, last] {
        let work = move || {
            // Its destructor runs after that of the runtime, which is used later.
            GUARD.with(|guard| *guard.borrow_mut() = None);
            let acquired = locks.lock("door").wait(ms(5000)).acquire().expect("a turn");
            GUARD.with(|guard| *guard.borrow_mut() = Some(acquired));
        };
        thread::spawn(work).join().expect("no panic");
    }
    let deadline = Instant::now() + ms(5000);
    while !is_free(&server, "door") {
        assert!(Instant::now() < deadline, "it is held");
        thread::sleep(ms(5));
    }
}
