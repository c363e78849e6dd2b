//! The facts about a run that its figures depend on.

use std::fmt;
use std::fs;
use std::thread;

use jiff::{Timestamp, Unit};
use serde::{Deserialize, Serialize};
use support::{Client, Server};

use crate::section::Effort;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// When it began.
    pub date: Timestamp,
    pub effort: Effort,
    /// Name and version.
    pub server: String,
    pub allocator: String,
    pub module: String,
    pub cpu: String,
    pub cores: usize,
    pub kernel: String,
}

impl Run {
    /// Looks at the machine and, in a server of its own, at the server and the module.
    pub fn begin(effort: Effort) -> Self {
        let started = Server::start();
        let mut client = started.client();
        let now = Timestamp::now();
        Self {
            date: now.round(Unit::Minute).unwrap_or(now),
            effort,
            server: server(&mut client),
            allocator: client.info("memory", "mem_allocator").unwrap_or_default(),
            module: module(&mut client),
            cpu: cpu(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            cores: thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel(&fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default()),
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { date, server, allocator, module, cpu, cores, kernel, .. } = self;
        let date = date.strftime("%Y-%m-%d %H:%M UTC");
        write!(formatter, "{date}: redis-lock {module} in {server} ({allocator}), {cores} cores of {cpu}, {kernel}")
    }
}

fn server(client: &mut Client) -> String {
    match client.info("server", "valkey_version") {
        Some(version) => format!("Valkey {version}"),
        None => format!("Redis {}", client.info("server", "redis_version").expect("a server that tells its version")),
    }
}

/// The module's version, which the server shows as a number.
fn module(client: &mut Client) -> String {
    let modules = client.run("MODULE LIST");
    let listed = modules.items().iter().find(|module| module.get("name") == "lock").expect("the module is loaded");
    version(listed.get("ver").int())
}

/// Two decimal digits each for major, minor and patch.
fn version(number: i64) -> String {
    format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
}

fn cpu(cpuinfo: &str) -> String {
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1));
    let words: Vec<&str> = model.unwrap_or("an unnamed CPU").split_whitespace().collect();
    words.join(" ").replace("(R)", "").replace("(TM)", "")
}

/// Linux with the first two parts of its version; the rest is the distributor's.
fn kernel(release: &str) -> String {
    let parts: Vec<&str> = release.trim().split('.').take(2).collect();
    format!("Linux {}", parts.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_from_what_the_system_says() {
        assert_eq!(version(100), "0.1.0");
        assert_eq!(version(21_503), "2.15.3");
        let cpuinfo = "processor\t: 0\nmodel name\t: Some(R) Chip(TM)  9 @ 3.10GHz\nflags\t\t: fpu\n";
        assert_eq!(cpu(cpuinfo), "Some Chip 9 @ 3.10GHz");
        assert_eq!(cpu(""), "an unnamed CPU");
        assert_eq!(kernel("6.1.0-18-amd64\n"), "Linux 6.1");
    }
}
