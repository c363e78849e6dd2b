//! Panics while the module is loaded and unloaded.

use support::{Client, Server, Setup, Waiter, eventually};

/// More than any entry has.
const MAX_PLACES: usize = 100;

/// A server that loads the module, which panics at a place of an entry.
fn starts(entry: &str, place: usize) -> Result<Server, String> {
    let armed = format!("FAILPOINT={entry} {place}");
    Setup::new().with_failpoints().allow_bugs().run_by(&["env", &armed]).try_start().map_err(|ended| ended.log)
}

#[test]
fn panic_in_load_refuses_module() {
    let mut places = 0;
    while let Err(log) = starts("load", places) {
        let line = format!("bug in redis-lock, please report it: load: failpoint {places} of load");
        assert!(log.contains(&line), "{log}");
        assert!(!log.contains("crashed by signal"), "{log}");
        places += 1;
    }
    assert!(places > 3, "{places} places");
}

#[test]
fn panic_in_unload_leaves_server_alive() {
    let server = Setup::new().with_failpoints().allow_bugs().config("hz 100").start();
    let mut admin = server.client();
    let listed = admin.run("MODULE LIST");
    let own = listed.items().iter().find(|module| module.get("name") == "lock").expect("the module");
    let path = own.get("path").string();
    // Nothing can panic at the first place of the end.
    for (entry, first, stays) in [("unload", 0, true), ("end", 1, false)] {
        for place in first..MAX_PLACES {
            assert_eq!(admin.call(&["FAILPOINT", entry, &place.to_string()]), 1);
            let unloaded = admin.run("MODULE UNLOAD lock");
            let line = format!("please report it: {entry}: failpoint {place} of {entry}");
            let has_panicked = server.log().contains(&line);
            assert_eq!(unloaded.is_error(), has_panicked && stays, "{line}");
            if !unloaded.is_error() {
                admin.ok(&format!("MODULE LOAD {path}"));
            }
            works(&server, &mut admin);
            if !has_panicked {
                assert!(place > first, "{entry} did not panic");
                break;
            }
        }
    }
}

/// A lock is handed over when a lease ends, which needs the timer.
#[track_caller]
fn works(server: &Server, admin: &mut Client) {
    assert_eq!(admin.run("LOCK.ACQUIRE door alice PX 20"), 1);
    let mut bob = Waiter::send(server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
    assert_eq!(bob.reply(), 1);
    assert_eq!(admin.run("LOCK.RELEASE door bob"), 0);
    // Nothing but this connection keeps the module.
    drop(bob);
    eventually("the other is closed", || admin.run("CLIENT LIST").string().lines().count() == 1);
}

#[test]
fn panic_after_load_leaves_module_working() {
    let server = starts("loaded", 0).expect("a server");
    assert!(server.log().contains("please report it: loaded: failpoint 0 of loaded"), "{}", server.log());
    works(&server, &mut server.client());
}
