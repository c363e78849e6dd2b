//! Loads that fail: what the log says of them, and that the server goes on.

use std::fs;

use support::{Client, Reply, Server, Setup, Waiter, module_under_test};

const ALREADY_LOADED: &str = "module lock is not loaded: a module of this name is loaded already";

fn path() -> String {
    module_under_test().display().to_string()
}

fn has_module(client: &mut Client) -> bool {
    client.run("MODULE LIST").items().iter().any(|module| module.get("name") == "lock")
}

/// Loads the module with settings, and returns whether the server has loaded it.
fn load_with(client: &mut Client, settings: &[[&str; 2]]) -> bool {
    let path = path();
    let words = ["MODULE", "LOADEX", &path].into_iter();
    let settings = settings.iter().flat_map(|[name, value]| ["CONFIG", name, value]);
    client.call(&words.chain(settings).collect::<Vec<_>>()) == "OK"
}

#[test]
fn second_load_is_refused_with_its_reason() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 60000"), 1);
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
    let copy = server.directory().join("copy.so");
    fs::copy(path(), &copy).expect("a copy of the module");
    let copy = copy.display().to_string();
    for (number, path) in [(1, &path()), (2, &copy)] {
        assert!(alice.call(&["MODULE", "LOAD", path]).is_error(), "{path}");
        assert_eq!(server.log().matches(ALREADY_LOADED).count(), number, "{}", server.log());
    }
    assert!(bob.is_blocked());
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0, "the module that is loaded goes on");
    assert_eq!(bob.reply(), 1);
}

#[test]
fn second_loadmodule_line_stops_start_with_its_reason() {
    let ended = Setup::new().config(&format!("loadmodule {}", path())).try_start().err().expect("a refusal");
    assert!(ended.log.contains(ALREADY_LOADED), "{}", ended.log);
    assert!(ended.log.contains("is `loadmodule` given twice?"), "{}", ended.log);
}

/// The commands that load and unload the module are executed in one iteration of the event loop, and between them another connection
/// has a command of the module in its transaction: a server that let the module go would crash at its EXEC.
#[test]
fn transaction_prevents_unload_after_load() {
    let server = Setup::new().without_module().start();
    let [mut sleeper, mut loader, mut queuing, mut unloader] = [(); 4].map(|()| server.client());
    sleeper.send(&["DEBUG", "SLEEP", "0.5"]);
    let pause = || std::thread::sleep(std::time::Duration::from_millis(50));
    pause();
    loader.send(&["MODULE", "LOAD", &path()]);
    pause();
    queuing.send_together(&["MULTI", "LOCK.ACQUIRE door bob", "GET key"]);
    pause();
    unloader.send(&["MODULE", "UNLOAD", "lock"]);
    assert_eq!(loader.receive(), "OK");
    assert!(unloader.receive().is_error());
    (0..3).for_each(|_| _ = queuing.receive());
    assert_eq!(queuing.run("EXEC").items().len(), 2);
    assert!(has_module(&mut loader));
}

/// The server loads the module, finds that a setting does not exist, and has to unload it again: most servers crash if that is
/// refused.
#[test]
fn unknown_setting_of_loadex_leaves_server_alive() {
    for settings in [
        &[["lock.no-such-setting", "5"]][..],
        &[["lock.recovery-ms", "20000"], ["lock.no-such-setting", "5"]],
        &[["lock.wake-foreign", "yes"], ["lock.max-waiters", "5"], ["other.setting", "5"]],
    ] {
        let server = Setup::new().without_module().start();
        let [mut admin, mut queuing] = [(); 2].map(|()| server.client());
        assert!(!load_with(&mut admin, settings), "{settings:?}");
        let _blocked = Waiter::start(&server, "BLPOP list 0");
        queuing.ok("MULTI");
        assert_eq!(queuing.run("PING"), "QUEUED");
        assert!(!load_with(&mut admin, settings), "{settings:?} with connections that wait");
        assert!(!has_module(&mut admin), "{settings:?}");
        assert_eq!(queuing.run("EXEC").items().len(), 1);

        assert!(load_with(&mut admin, &[["lock.recovery-ms", "20000"]]));
        assert_eq!(admin.run("LOCK.ACQUIRE door alice PX 60000"), 1, "it works when it is loaded afterwards");
        let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 50");
        assert_eq!(bob.reply(), Reply::Nil, "its timer runs");
    }
}
