//! What the module writes into the server's log: what an operator should know, as docs/operations.md lists it, and no more.

use std::fs;
use std::path::{Path, PathBuf};

use support::scenario::{Numbers, fits};
use support::{Program, Server, Setup, Waiter, eventually, repository};

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

/// Returns whether a line fits a documented one.
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
        expected.push("this server has no ACL category @lock, so ACL rules must name the LOCK commands".to_owned());
    }
    assert_eq!(lines_of(&server.log()), expected, "and nothing else");
}

#[test]
fn setting_of_server_logs_warning() {
    for (config, line, count) in [
        ("maxmemory-policy noeviction", "maxmemory-policy", 0),
        ("maxmemory-policy volatile-lru", "maxmemory-policy", 1),
        ("maxmemory-policy allkeys-random", "maxmemory-policy", 1),
        ("rename-command CONFIG hidden", "CONFIG is renamed", 1),
    ] {
        let server = Setup::new().config(config).start();
        assert_eq!(beginning_with(&server, line).len(), count, "{config}");
    }
}

/// What goes wrong again and again is logged once in a minute.
#[test]
fn repeated_refusal_logs_one_line() {
    let config = "lock.max-waiters 1\nlock.max-sessions 1\nlock.wake-foreign yes\nrename-command LPUSH \"\"";
    let server = Setup::new().config(config).start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 60000 SESSION"), 1);
    let _bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    assert_eq!(lines_of(&server.log()).iter().filter(|line| line.contains("FULL")).count(), 0, "none was refused");
    for _ in 0..20 {
        assert_eq!(client.run("LOCK.ACQUIRE door carol BLOCK 0").code(), "QUEUEFULL");
        assert_eq!(client.run("LOCK.ACQUIRE gate alice PX 60000 SESSION").code(), "SESSIONFULL");
        assert_eq!(client.run("LOCK.ACQUIRE lock:hall alice"), 1);
        assert_eq!(client.run("LOCK.RELEASE lock:hall alice"), 0);
    }
    for (start, rest) in [
        ("QUEUEFULL", ": refusing requests, because lock.max-waiters are waiting (1)"),
        ("SESSIONFULL", ": refusing requests, because there are lock.max-sessions sessions (1)"),
        ("lock.wake-foreign", ": the server has refused LPUSH, so a waiter of another library may not be woken"),
    ] {
        assert_eq!(beginning_with(&server, start), [start.to_owned() + rest]);
    }
}

#[test]
fn recovery_period_logs_begin_and_end() {
    let server = Setup::new().config("lock.recovery-ms 600000").start();
    let mut client = server.client();
    eventually("it has begun", || beginning_with(&server, "granting no lock for").len() == 1);
    client.ok("CONFIG SET lock.recovery-ms 0");
    eventually("it has ended", || beginning_with(&server, "granting locks again").len() == 1);
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
