//! The files of contrib/, as they are and as they are run here: on other ports, with short intervals, without delay.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::repository;

use super::programs::command;

/// What the example configuration calls the server and the exporter.
const SERVER: &str = "redis://127.0.0.1:6379";
const EXPORTER: &str = "127.0.0.1:9121";

pub const SCRIPT: &str = "prometheus/redis-lock.lua";
pub const RULES: &str = "prometheus/redis-lock.rules.yml";

pub fn path(name: &str) -> PathBuf {
    repository().join("contrib").join(name)
}

#[track_caller]
pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Replaces what must be there.
#[track_caller]
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "no {from} in\n{text}");
    text.replace(from, to)
}

/// The exporter with the arguments and the environment of the example, on another port.
#[track_caller]
pub fn exporter(port: u16) -> Command {
    let defaults = read(&path("prometheus/prometheus-redis-exporter"));
    let mut exporter = command("prometheus-redis-exporter");
    for line in defaults.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.split_once('=').expect("a name and a value");
        let value = value.trim_matches('"');
        if name == "ARGS" {
            let here = replaced(value, EXPORTER, &format!("127.0.0.1:{port}"));
            let script = path(SCRIPT).display().to_string();
            exporter.args(replaced(&here, "/etc/prometheus/redis-lock.lua", &script).split(' '));
        } else {
            exporter.env(name, value);
        }
    }
    exporter
}

/// Writes the example configuration for these servers into a folder, and the rules beside it: looked at each second, and
/// alerts fire at once. When they do otherwise, alerts.rs shows.
#[track_caller]
pub fn write_configuration(folder: &Path, servers: &[String], exporter: u16) -> PathBuf {
    let example = read(&path("prometheus/prometheus.yml"));
    let quoted = servers.join("', '");
    let text = replaced(&replaced(&example, SERVER, &quoted), EXPORTER, &format!("127.0.0.1:{exporter}"));
    let file = folder.join("prometheus.yml");
    fs::write(&file, replaced(&text, "15s", "1s")).expect("a writable folder");
    let rules = read(&path(RULES));
    let at_once: Vec<&str> = rules.lines().filter(|line| !line.trim_start().starts_with("for: ")).collect();
    assert!(at_once.len() < rules.lines().count(), "some alerts wait");
    fs::write(folder.join("redis-lock.rules.yml"), at_once.join("\n")).expect("a writable folder");
    file
}

/// The command of the guide that makes the exporter's user.
#[track_caller]
pub fn user() -> String {
    let guide = read(&repository().join("docs/guides/monitoring.md"));
    let line = guide.lines().find_map(|line| line.strip_prefix("admin> ACL SETUSER exporter "));
    format!("ACL SETUSER exporter {}", line.expect("a user for the exporter"))
}
