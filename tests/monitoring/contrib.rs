//! The files of contrib/, and their copies with other ports and a shorter interval.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use support::repository;

use super::prometheus::command;

pub const SCRIPT: &str = "prometheus/redis-lock.lua";
pub const RULES: &str = "prometheus/redis-lock.rules.yml";
pub const RULE_TESTS: &str = "prometheus/redis-lock.test.yml";
pub const CONFIGURATION: &str = "prometheus/prometheus.yml";

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

/// Returns the values of a key in a file, one for each line that has it.
#[track_caller]
pub fn values(file: &str, key: &str) -> BTreeSet<String> {
    let text = read(&path(file));
    text.lines().filter_map(|line| line.trim_start().strip_prefix(key)).map(|value| value.trim().to_owned()).collect()
}

/// Returns the exporter with the arguments and the environment of the example.
#[track_caller]
pub fn exporter(port: u16) -> Command {
    let mut exporter = command("prometheus-redis-exporter");
    for line in read(&path("prometheus/prometheus-redis-exporter")).lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.split_once('=').expect("a name and a value");
        let value = value.trim_matches('"');
        if name == "ARGS" {
            let here = replaced(value, "127.0.0.1:9121", &format!("127.0.0.1:{port}"));
            let script = path(SCRIPT).display().to_string();
            exporter.args(replaced(&here, "/etc/prometheus/redis-lock.lua", &script).split(' '));
        } else {
            exporter.env(name, value);
        }
    }
    exporter
}

/// Writes the example configuration for these servers, with a sample each second, and the rules into a folder.
#[track_caller]
pub fn write_configuration(folder: &Path, servers: &[String], exporter: u16) -> PathBuf {
    let example = read(&path(CONFIGURATION));
    let text = replaced(&example, "redis://127.0.0.1:6379", &servers.join("', '"));
    let text = replaced(&text, "127.0.0.1:9121", &format!("127.0.0.1:{exporter}"));
    let file = folder.join("prometheus.yml");
    fs::write(&file, replaced(&text, "15s", "1s")).expect("a writable folder");
    fs::copy(path(RULES), folder.join("redis-lock.rules.yml")).expect("a writable folder");
    file
}

/// Returns the command of the guide that creates the exporter's user.
#[track_caller]
pub fn user() -> String {
    let guide = read(&repository().join("docs/guides/monitoring.md"));
    let command = guide.lines().find_map(|line| line.split_once("> ACL SETUSER exporter "));
    format!("ACL SETUSER exporter {}", command.expect("a user for the exporter").1)
}

/// Returns the queries of the dashboard, for all servers, with four times the interval between samples at least.
#[track_caller]
pub fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read(&path("grafana/redis-lock.json"))).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("queries"));
    let filled_in = |target: &Value| {
        let query = replaced(target["expr"].as_str().expect("a query"), "instance=~\"$instance\"", "instance=~\".*\"");
        query.replace("$__rate_interval", "1m")
    };
    targets.map(filled_in).collect()
}
