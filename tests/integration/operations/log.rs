//! What the module writes into the server's log: what an operator should know, as docs/operations.md lists it, and no more.

use std::fs;
use std::path::{Path, PathBuf};

use support::listener::Listener;
use support::scenario::{Numbers, fits};
use support::{Client, Program, Reply, Server, Setup, Waiter, eventually, module_under_test, repository};

/// The lines that docs/operations.md lists, with `*` for what differs.
fn documented() -> Vec<String> {
    let page = fs::read_to_string(repository().join("docs/operations.md")).expect("docs/operations.md");
    let (_, section) = page.split_once("\n## Log\n").expect("a section on the log");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let lines: Vec<String> = rows.filter_map(|row| row.split('`').next()).map(str::to_owned).collect();
    assert!(lines.len() > 5, "{lines:?}");
    lines
}

/// Whether a line is what is listed.
fn is_listed(line: &str, listed: &str) -> bool {
    fits(&listed.replace('*', "..."), line, &mut Numbers::new())
}

/// The lines that the module has written into this log, which are all documented.
#[track_caller]
fn lines_of(log: &str) -> Vec<String> {
    let own = log.lines().filter_map(|line| line.split_once("<lock> "));
    let lines: Vec<String> = own.map(|(_, line)| line.to_owned()).collect();
    let documented = documented();
    let unknown: Vec<_> = lines.iter().filter(|line| !documented.iter().any(|it| is_listed(line, it))).collect();
    assert!(unknown.is_empty(), "not in docs/operations.md: {unknown:?}");
    lines
}

/// The lines that begin with this.
#[track_caller]
fn beginning_with(server: &Server, start: &str) -> Vec<String> {
    lines_of(&server.log()).into_iter().filter(|line| line.starts_with(start)).collect()
}

#[test]
fn load_logs_versions_and_missing_features() {
    let server = Server::start();
    let mut client = server.client();
    let (name, field) = match server.flavour().program {
        Program::Redis => ("Redis", "redis_version"),
        Program::Valkey => ("Valkey", "valkey_version"),
        Program::Redict => ("Redict", "redict_version"),
    };
    let version = client.info("server", field).expect("a version");
    let mut expected = vec![format!("redis-lock {} is loaded into {name} {version}", env!("CARGO_PKG_VERSION"))];
    if !server.flavour().has_module_acl_categories() {
        expected.push("this server has no ACL category @lock: name the LOCK commands in ACL rules".to_owned());
    }
    assert_eq!(lines_of(&server.log()), expected, "and nothing else");
}

#[test]
fn evicting_policy_logs_warning() {
    let setup = |policy: &str| Setup::new().config(&format!("maxmemory-policy {policy}"));
    let warnings = |policy: &str| beginning_with(&setup(policy).start(), "maxmemory-policy").len();
    assert_eq!(warnings("noeviction"), 0);
    for policy in ["volatile-lru", "allkeys-random"] {
        assert_eq!(warnings(policy), 1, "{policy}");
    }
}

#[test]
fn renamed_config_logs_warning() {
    let server = Setup::new().config("rename-command CONFIG hidden").start();
    assert_eq!(beginning_with(&server, "CONFIG has another name").len(), 1);
}

#[test]
fn refused_load_and_unload_log_reason() {
    let server = Server::start();
    let mut client = server.client();
    let path = module_under_test().display().to_string();
    assert_eq!(client.run("LOCK.ACQUIRE door alice"), 1);
    let mut news = Listener::start(&server, "news");
    assert_eq!(client.run("LOCK.ACQUIRE door carol PX 60000 BLOCK 0 NOTIFY news"), Reply::waiting());
    assert!(client.run("MODULE UNLOAD lock").is_error());
    assert_eq!(beginning_with(&server, "module lock is not unloaded: requests wait").len(), 1);
    assert_eq!(client.run("LOCK.RELEASE door alice"), 0);
    news.hears("granted", "carol", "door");
    eventually("it can be unloaded", || client.run("MODULE UNLOAD lock") == "OK");
    assert!(client.call(&["MODULE", "LOAD", &path, "unknown"]).is_error());
    assert_eq!(beginning_with(&server, "module lock is not loaded: it takes no arguments").len(), 1);
}

/// Sends a request many times, which is refused with this code each time.
#[track_caller]
fn is_refused(client: &mut Client, line: &str, code: &str) {
    for _ in 0..50 {
        assert_eq!(client.run(line).code(), code, "{line}");
    }
}

#[test]
fn full_queue_logs_one_line() {
    let server = Setup::new().config("lock.max-waiters 1").start();
    let mut client = server.client();
    let _news = Listener::start(&server, "news");
    assert_eq!(client.run("LOCK.ACQUIRE door alice"), 1);
    let bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    assert_eq!(beginning_with(&server, "QUEUEFULL").len(), 0, "nobody was refused");
    is_refused(&mut client, "LOCK.ACQUIRE door carol BLOCK 0", "QUEUEFULL");
    let expected = "QUEUEFULL: requests are refused, because as many wait as lock.max-waiters allows (1)";
    assert_eq!(beginning_with(&server, "QUEUEFULL"), [expected]);
    is_refused(&mut client, "LOCK.SHARE door carol PX 60000 BLOCK 0 NOTIFY news", "QUEUEFULL");
    drop(bob);
    eventually("there is room again", || support::waiters_of(&mut client, "door") == 0);
    let _dave = Waiter::start(&server, "LOCK.ACQUIRE door dave BLOCK 0");
    is_refused(&mut client, "LOCK.REENTER door carol BLOCK 0", "QUEUEFULL");
    assert_eq!(beginning_with(&server, "QUEUEFULL").len(), 1, "full again within a minute");
    assert_eq!(beginning_with(&server, "SESSIONFULL").len(), 0);
}

#[test]
fn too_many_sessions_log_one_line() {
    let server = Setup::new().config("lock.max-sessions 1").start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 60000 SESSION"), 1);
    assert_eq!(beginning_with(&server, "SESSIONFULL").len(), 0, "nobody was refused");
    is_refused(&mut client, "LOCK.ACQUIRE gate alice PX 60000 SESSION", "SESSIONFULL");
    let expected =
        "SESSIONFULL: requests are refused, because there are as many sessions as lock.max-sessions allows (1)";
    assert_eq!(beginning_with(&server, "SESSIONFULL"), [expected]);
    assert_eq!(beginning_with(&server, "QUEUEFULL").len(), 0);
}

#[test]
fn missing_wake_command_logs_one_line() {
    let server = Setup::new().config("lock.wake-foreign yes\nrename-command LPUSH \"\"").start();
    let mut client = server.client();
    for _ in 0..3 {
        assert_eq!(client.run("LOCK.ACQUIRE lock:door alice"), 1);
        assert_eq!(client.run("LOCK.RELEASE lock:door alice"), 0);
    }
    assert_eq!(client.run("DBSIZE"), 0);
    let expected = "lock.wake-foreign: the server has refused LPUSH, so somebody may not be woken";
    assert_eq!(beginning_with(&server, "lock.wake-foreign"), [expected]);
}

/// The source files in a folder and in the folders below, without those of tests.
fn files(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).expect("a folder of sources").map(|entry| entry.expect("an entry").path());
    let paths = paths.filter(|path| path.file_stem().is_none_or(|name| name != "tests"));
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn documented_lines_are_in_sources() {
    let files = ["host", "server"].into_iter().flat_map(|layer| files(&repository().join("src").join(layer)));
    let text: String = files.map(|path| fs::read_to_string(path).expect("a source")).collect();
    for line in documented() {
        // The sources do not have the module's name in them.
        let parts = line.split('*').flat_map(|part| part.split("module lock"));
        let longest = parts.max_by_key(|part| part.len()).expect("a part").trim();
        assert!(text.contains(longest), "{line}: {longest}");
    }
}
