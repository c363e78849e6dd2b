//! CONFIG REWRITE writes `loadmodule` into the main configuration file, wherever else it stands: docs/guides/upgrading.md.

use std::fs;
use std::path::Path;

use support::replicas::{in_time, is_master};
use support::sentinel::Sentinel;
use support::{Ended, Server, Setup, module_under_test};

const ALREADY_LOADED: &str = "module lock is not loaded: a module of this name is loaded already";

fn loadmodule() -> String {
    format!("loadmodule {}", module_under_test().display())
}

/// A line that includes a file with this text.
fn including(name: &str, text: &str) -> String {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&file, text).expect("a writable folder");
    format!("include {}", file.display())
}

/// The main file as CONFIG REWRITE leaves it, after which the server is shut down.
fn rewritten(server: &mut Server) -> String {
    server.client().ok("CONFIG REWRITE");
    server.shut_down("");
    fs::read_to_string(server.directory().join("server.conf")).expect("the configuration")
}

/// Starts a server in the folder and on the port of another one, with a main file that may have been rewritten.
fn start_again(server: &Server, setup: Setup, file: &str) -> Result<Server, Ended> {
    setup.config(file).in_directory_of(server).on_port(server.port()).try_start()
}

fn without_loadmodule(file: &str) -> String {
    file.lines().filter(|line| !line.starts_with("loadmodule ")).map(|line| format!("{line}\n")).collect()
}

#[test]
fn rewritten_file_with_include_does_not_start() {
    let include = including("included.conf", &format!("{}\nlock.max-waiters 50\n", loadmodule()));
    let plain = Setup::new().without_module();
    let mut server = plain.clone().config(&include).start();
    let file = rewritten(&mut server);
    assert!(file.contains(&include), "{file}");
    assert_eq!(file.matches("loadmodule ").count(), 1, "{file}");
    assert!(file.contains("\nlock.max-waiters 50\n"), "settings are written, too: {file}");
    let ended = start_again(&server, plain.clone(), &file).err().expect("a server that does not start");
    assert!(ended.log.contains(ALREADY_LOADED), "{}", ended.log);
    // What the page says to do.
    let started = start_again(&server, plain, &without_loadmodule(&file)).expect("a server that starts");
    assert_eq!(started.client().run("LOCK.ACQUIRE door alice"), 1);
}

#[test]
fn rewritten_file_with_command_line_does_not_start() {
    let shell = format!("exec \"$@\" --{} --lock.max-waiters 50", loadmodule());
    let with_arguments = Setup::new().without_module().run_by(&["sh", "-c", &shell, "sh"]);
    let mut server = with_arguments.start();
    let file = rewritten(&mut server);
    assert_eq!(file.matches("loadmodule ").count(), 1, "{file}");
    let ended = start_again(&server, with_arguments, &file).err().expect("a server that does not start");
    assert!(ended.log.contains(ALREADY_LOADED), "{}", ended.log);
    // What the page says to do.
    let started = start_again(&server, Setup::new().without_module(), &file).expect("a server that starts");
    assert_eq!(started.client().run("LOCK.ACQUIRE door alice"), 1);
}

#[test]
fn rewritten_file_with_its_own_loadmodule_starts() {
    let mut server = Server::start();
    let settings = [("lock.max-waiters", "50"), ("lock.wake-foreign", "yes")];
    for (name, value) in settings {
        server.client().ok(&format!("CONFIG SET {name} {value}"));
    }
    let file = rewritten(&mut server);
    assert_eq!(file.matches("loadmodule ").count(), 1, "{file}");
    let started = start_again(&server, Setup::new().without_module(), &file).expect("a server that starts");
    for (name, value) in settings {
        assert!(file.lines().any(|line| line == format!("{name} {value}")), "{file}");
        assert_eq!(started.client().run(&format!("CONFIG GET {name}")).get(name), value);
    }
}

#[test]
fn module_loaded_at_run_time_is_rewritten_and_starts() {
    let plain = Setup::new().without_module();
    let mut server = plain.start();
    server.client().ok(&format!("MODULE LOADEX {} CONFIG lock.max-waiters 50", module_under_test().display()));
    let file = rewritten(&mut server);
    let started = start_again(&server, plain, &file).expect("a server that starts");
    assert_eq!(started.client().run("CONFIG GET lock.max-waiters").get("lock.max-waiters"), "50");
}

#[test]
fn failover_by_sentinel_rewrites_both_files() {
    let setup = Setup::new().without_module().config(&including("sentinel.conf", &loadmodule()));
    let old = setup.clone().config("repl-diskless-sync-delay 0").start();
    let new = setup.config(&format!("replicaof 127.0.0.1 {}", old.port())).start();
    let text_of = |server: &Server| fs::read_to_string(server.directory().join("server.conf")).expect("the file");
    let sentinels = Sentinel::start_three(&old, 1);
    assert!(!text_of(&old).contains("loadmodule ") && !text_of(&new).contains("loadmodule "));
    sentinels[0].fail_over();
    in_time("the other one is promoted", || is_master(&new));
    for server in [&old, &new] {
        in_time("its file is rewritten", || text_of(server).contains("\nloadmodule "));
    }
}
