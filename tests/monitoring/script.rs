//! The collect script by itself: what it answers with.

use support::{Reply, Server, Setup, Waiter};

use super::contrib::{SCRIPT, path, read};

/// The names and values of a script's answer.
#[track_caller]
fn metrics(server: &Server, script: &str) -> Vec<(String, String)> {
    let reply = server.client().call(&["EVAL", script, "0"]);
    reply.pairs().into_iter().map(|(name, value)| (name, value.string())).collect()
}

#[test]
fn a_long_key_is_cut_and_without_names_there_are_the_other_metrics() {
    let server = Server::start();
    let key = "k".repeat(200);
    assert_eq!(server.client().run(&format!("LOCK.ACQUIRE {key} alice PX 600000")), 1);
    let _bob = Waiter::start(&server, &format!("LOCK.ACQUIRE {key} bob BLOCK 0"));
    let script = read(&path(SCRIPT));
    let shown = format!("lock_queue_waiters db0 {}", "k".repeat(80));
    assert!(metrics(&server, &script).contains(&(shown, "1".to_owned())));

    let nameless = script.replace("local MOST = 10", "local MOST = 0");
    assert_ne!(nameless, script);
    let metrics = metrics(&server, &nameless);
    assert!(metrics.contains(&("lock_waiters".to_owned(), "1".to_owned())), "{metrics:?}");
    assert!(!metrics.iter().any(|(name, _)| name.starts_with("lock_queue")), "{metrics:?}");
}

#[test]
fn a_server_without_the_module_has_nothing_to_say() {
    let server = Setup::new().without_module().start();
    assert_eq!(server.client().call(&["EVAL", &read(&path(SCRIPT)), "0"]), Reply::list([]));
}
