use redis_lock_client::Error;
use tokio::time::{Instant, sleep, timeout};

use crate::{LONG, is_free, ms, started};

/// Returns how long it takes until a loss is reported.
async fn loss_after(guard: &redis_lock_client::Guard, lose: impl FnOnce()) -> u128 {
    // It is watched from the first call on.
    assert!(timeout(ms(100), guard.lost()).await.is_err(), "it is held");
    lose();
    let lost_at = Instant::now();
    timeout(LONG, guard.lost()).await.expect("a loss");
    assert!(guard.is_lost());
    lost_at.elapsed().as_millis()
}

#[tokio::test]
async fn removed_lock_is_lost_within_50_ms() {
    let (server, locks) = started().await;
    let mut times = Vec::new();
    for number in 0..20 {
        let name = format!("door:{number}");
        let lock = locks.lock(name.as_str());
        let lock = match number % 4 {
            0 => lock,
            1 => lock.reentrant("job"),
            2 => lock.shared(),
            _ => lock.session(),
        };
        let guard = lock.acquire().await.expect("a free lock");
        times.push(loss_after(&guard, || drop(server.ask(&format!("DEL {name}")))).await);
    }
    times.sort_unstable();
    println!("lost after (ms): {times:?}");
    assert!(times[10] <= 50, "{times:?}");
}

#[tokio::test]
async fn overwritten_lock_is_lost() {
    let (server, locks) = started().await;
    let guard = locks.lock("door").acquire().await.expect("a free lock");
    assert!(loss_after(&guard, || drop(server.ask("SET door other"))).await < 500);
    assert!(matches!(guard.release().await, Err(Error::Lost(_))));
    assert_eq!(server.ask("GET door"), "other");
}

#[tokio::test]
async fn flushed_lock_is_lost() {
    let (server, locks) = started().await;
    let guard = locks.lock("door").acquire().await.expect("a free lock");
    assert!(loss_after(&guard, || drop(server.ask("FLUSHALL"))).await < 500);
}

#[tokio::test]
async fn shortened_lease_is_noticed() {
    let (server, locks) = started().await;
    let guard = locks.lock("door").lease(LONG).acquire().await.expect("a free lock");
    assert!(loss_after(&guard, || drop(server.ask("PEXPIRE door 200"))).await < 900);
}

#[tokio::test]
async fn renewed_lock_outlasts_its_lease() {
    let (server, locks) = started().await;
    let renewed = locks.lock("door").lease(ms(900)).renew().acquire().await.expect("a free lock");
    let in_session = locks.lock("cellar").lease(ms(900)).session().acquire().await.expect("a free lock");
    let share = locks.lock("page").shared().lease(ms(900)).session().acquire().await.expect("a free lock");
    let plain = locks.lock("window").lease(ms(900)).acquire().await.expect("a free lock");
    sleep(ms(2500)).await;
    assert!(!renewed.is_lost() && !in_session.is_lost() && !share.is_lost());
    assert!(plain.is_lost() && is_free(&server, "window"));
    for guard in [renewed, in_session, share] {
        guard.release().await.expect("a lock that is held");
    }
    assert!(is_free(&server, "door") && is_free(&server, "cellar") && is_free(&server, "page"));
}

/// The server ends a session whose key is in another database when it renews it. Its lease goes on.
#[tokio::test]
async fn session_that_the_server_ends_is_extended() {
    let (server, locks) = started().await;
    let guard = locks.lock("door").lease(ms(4500)).session().acquire().await.expect("a free lock");
    sleep(ms(1000)).await;
    server.ask("SWAPDB 0 1");
    sleep(ms(1200)).await;
    server.ask("SWAPDB 0 1");
    sleep(ms(5000)).await;
    assert!(!guard.is_lost());
    assert_eq!(server.ask("GET door"), guard.token());
}

#[tokio::test]
async fn extended_lease_moves_the_timer() {
    let (_server, locks) = started().await;
    let guard = locks.lock("door").lease(ms(400)).acquire().await.expect("a free lock");
    assert!(timeout(ms(50), guard.lost()).await.is_err());
    guard.extend(ms(1500)).await.expect("a lock that is held");
    assert!(timeout(ms(800), guard.lost()).await.is_err(), "it was extended");
    guard.extend(ms(100)).await.expect("a lock that is held");
    timeout(ms(400), guard.lost()).await.expect("its end");
}

#[tokio::test]
async fn renewal_under_way_does_not_undo_extend() {
    let (server, locks) = started().await;
    let guard = locks.lock("door").lease(ms(900)).renew().acquire().await.expect("a free lock");
    sleep(ms(100)).await;
    // The renewal after 300 ms is sent before the reply to the extension comes.
    server.ask("CLIENT PAUSE 400 ALL");
    guard.extend(LONG).await.expect("a lock that is held");
    sleep(ms(50)).await;
    assert!(guard.remaining() > ms(50_000), "{:?}", guard.remaining());
    assert!(server.client().pttl("door") > 50_000);
}
