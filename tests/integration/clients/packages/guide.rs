//! Holds docs/guides/migration.md to what the packages do, and runs the programs that it shows.

use std::fs;

use support::{Server, Setup, repository};

use super::fleet::{Fleet, Package, packages};
use crate::documents::blocks::{MIGRATION, every_block};
use crate::documents::programs::{said, start};

#[track_caller]
fn guide() -> String {
    fs::read_to_string(repository().join(MIGRATION)).expect("the guide")
}

/// The rows of the guide's tables that begin with a package and its version.
fn rows<'g>(guide: &'g str, package: &Package, version: &str) -> Vec<&'g str> {
    let begin = format!("| {} {version}", package.title);
    guide.lines().filter(|line| line.starts_with(&begin)).collect()
}

#[test]
fn the_guide_names_what_each_package_writes_and_says() {
    let (guide, server) = (guide(), Server::start());
    let (mut fleet, mut raw) = (Fleet::new(&server), server.client());
    for package in packages() {
        fleet.acquire(&package, 600, 1);
        let answer = fleet.answer(package.name);
        let version = answer.strip_prefix("held ").unwrap_or_else(|| panic!("{}: {answer}", package.name));
        let rows = rows(&guide, &package, version);
        let length = raw.run(&format!("STRLEN {}", package.key())).int();
        let key = format!("| `{}` | String, {length} ", package.key_of("door"));
        assert!(rows.iter().any(|row| row.contains(&key)), "{} {version}: {key}", package.name);
        let lost = if package.lost == "released" { "nothing is said".into() } else { format!("`{}`", package.lost) };
        let lost = format!("| {lost} |");
        assert!(rows.iter().any(|row| row.ends_with(&lost)), "{} {version}: {lost}", package.name);
        let tries = package.tries.map(|tries| format!("| gives up after {tries} tries, "));
        let says = |row: &&str| tries.as_ref().is_none_or(|tries| row.contains(tries));
        assert!(rows.iter().any(says), "{} {version}: {tries:?}", package.name);
    }
}

#[test]
fn the_programs_of_the_guide_take_and_release_the_lock() {
    let package = repository().join("clients/python/src");
    let programs: Vec<_> = every_block("python").into_iter().filter(|block| block.document == MIGRATION).collect();
    assert_eq!(programs.len(), 3);
    for program in programs {
        let server = Server::start();
        let text = format!("import sys\nsys.path.insert(0, {package:?})\n{}", program.lines.join("\n"));
        let said = said(start("python", &text, server.port()));
        assert!(said.as_ref().is_ok_and(|said| said.starts_with("the door is ours")), "{}: {said:?}", program.first);
        let left = server.client().run("KEYS *door").items().len();
        assert_eq!(left, 0, "line {}", program.first);
    }
}

/// The way back: what LOCK commands hold is held in a server without the module.
#[test]
fn a_server_without_the_module_keeps_what_is_held() {
    let server = Setup::new().start();
    let mut raw = server.client();
    assert_eq!(raw.run("LOCK.ACQUIRE door new PX 600000"), 1);
    raw.ok("MODULE UNLOAD lock");
    assert!(raw.run("LOCK.INFO door").is_error());
    assert!(!raw.run("SET door old NX PX 9000").is_error());
    assert_eq!(raw.run("GET door"), "new");
    let release = "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1])";
    assert_eq!(raw.call(&["EVAL", release, "1", "door", "new"]), 1);
    assert_eq!(raw.run("SET door old NX PX 9000"), "OK");
}
