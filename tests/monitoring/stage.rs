//! Servers with the module, one without, an exporter that asks all of them, and a Prometheus that asks the exporter.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::PathBuf;

use support::{Server, Setup, free_port, happens_within, server_under_test};
use tempfile::TempDir;

use super::contrib;
use super::programs::Daemon;
use super::prometheus::{PROMPT, Prometheus};

/// How many requests may wait at each server.
pub const MOST_WAITERS: usize = 1100;

pub struct Stage {
    pub prometheus: Prometheus,
    pub servers: Vec<Server>,
    pub without_module: Server,
    pub exporter: Daemon,
    _folder: TempDir,
}

fn binaries() -> Vec<PathBuf> {
    let list = env::var("SERVERS").unwrap_or_default();
    let named: Vec<PathBuf> =
        list.lines().filter_map(|line| line.split_once(' ')).map(|(_, path)| path.into()).collect();
    if named.is_empty() { vec![server_under_test()] } else { named }
}

/// What the metrics call a server.
pub fn instance(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

impl Stage {
    #[track_caller]
    pub fn open() -> Self {
        let setup = Setup::new().config(&format!("lock.max-waiters {MOST_WAITERS}"));
        let servers: Vec<Server> = binaries().into_iter().map(|binary| setup.clone().binary(binary).start()).collect();
        let without_module = Setup::new().without_module().start();
        for server in &servers {
            server.client().ok(&contrib::user());
        }
        // It knows no command of the module, so the rule must not name one.
        without_module.client().ok(&contrib::user().replace(" +lock.queues", ""));

        let folder = TempDir::with_prefix("redis-lock-test-").expect("a temporary folder");
        let port = free_port();
        let exporter = Daemon::start(contrib::exporter(port), &folder.path().join("exporter.log"));
        let targets: Vec<String> = servers.iter().chain([&without_module]).map(instance).collect();
        let configuration = contrib::write_configuration(folder.path(), &targets, port);
        let prometheus = Prometheus::start(&configuration, folder.path());
        Self { prometheus, servers, without_module, exporter, _folder: folder }
    }

    /// The names of the servers with the module.
    pub fn instances(&self) -> BTreeSet<String> {
        self.servers.iter().map(instance).collect()
    }

    /// What the collect script says of one server now.
    #[track_caller]
    pub fn metrics_of(&self, server: &Server) -> BTreeMap<String, f64> {
        let series = self.prometheus.query(&format!("redis_script_values{{instance=\"{}\"}}", instance(server)));
        series.iter().map(|series| (series.label("key").to_owned(), series.value())).collect()
    }

    /// Waits until an expression has a value for each server with the module.
    #[track_caller]
    pub fn has_values(&self, expression: &str) {
        let instances = self.instances();
        let mut missing = BTreeSet::new();
        let complete = || {
            let series = self.prometheus.query(expression);
            let there = series.iter().filter(|series| !series.value().is_nan());
            let there: BTreeSet<String> = there.map(|series| series.label("instance").to_owned()).collect();
            missing = &instances - &there;
            missing.is_empty()
        };
        assert!(happens_within(PROMPT, complete), "{expression} has no value for {missing:?}");
    }
}
