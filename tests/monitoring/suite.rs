//! `make monitoring`: what contrib/ has for Prometheus and Grafana, with the real programs and a server with the module. There
//! is no Grafana: Prometheus runs the queries of its dashboard.

mod contrib;
mod prometheus;

use std::collections::{BTreeMap, BTreeSet};

use contrib::{CONFIGURATION, RULE_TESTS, RULES, SCRIPT, path, read};
use prometheus::{Daemon, PROMPT, Prometheus, command};
use support::{Server, Setup, Waiter, free_port, happens_within};
use tempfile::TempDir;

/// What the metrics call the lock of [`LONG_KEY`] in database 3.
const LONG_KEY: &[u8] = b"caf\xe9 1";
const LONG_METRIC: &str = "lock_queue_waiters db3 caf\\xe9\\x201";

/// These change while the server is idle.
const MOVING: [&str; 2] = ["lock_longest_wait_ms", "lock_recovery_ms"];

#[test]
fn promtool_accepts_rules_and_their_tests() {
    for (what, file) in [("check config", CONFIGURATION), ("check rules", RULES), ("test rules", RULE_TESTS)] {
        let output = command("promtool").args(what.split(' ')).arg(path(file)).output().expect("promtool");
        assert!(output.status.success(), "{what} {file}: {output:?}");
    }
    // Each alert has a test of when it fires.
    assert_eq!(contrib::values(RULE_TESTS, "alertname:"), contrib::values(RULES, "- alert:"));
}

#[test]
fn script_cuts_long_keys_and_can_leave_them_out() {
    let server = Server::start();
    let key = "k".repeat(200);
    assert_eq!(server.client().run(&format!("LOCK.ACQUIRE {key} alice PX 600000")), 1);
    let _bob = Waiter::start(&server, &format!("LOCK.ACQUIRE {key} bob BLOCK 0"));
    let metrics = |script: &str| {
        let reply = server.client().call(&["EVAL", script, "0"]);
        reply.pairs().into_iter().map(|(name, value)| (name, value.string())).collect::<BTreeMap<_, _>>()
    };
    let script = read(&path(SCRIPT));
    let cut = format!("lock_queue_waiters db0 {}", "k".repeat(80));
    assert_eq!(metrics(&script).get(&cut).map(String::as_str), Some("1"));

    let nameless = metrics(&script.replace("local MOST = 10", "local MOST = 0"));
    assert_eq!(nameless.get("lock_waiters").map(String::as_str), Some("1"));
    assert!(!nameless.keys().any(|name| name.starts_with("lock_queue")), "{nameless:?}");
}

#[test]
fn script_answers_in_a_pause() {
    let server = Server::start();
    server.client().ok("CLIENT PAUSE 600000 WRITE");
    let metrics = server.client().call(&["EVAL", &read(&path(SCRIPT)), "0"]).pairs();
    assert!(metrics.iter().any(|(name, value)| name == "lock_suspended_by_paused" && *value == "1"), "{metrics:?}");
}

/// A server with the module and one without, an exporter for both, and a Prometheus.
struct Stage {
    prometheus: Prometheus,
    exporter: Daemon,
    server: Server,
    without_module: Server,
    _folder: TempDir,
}

/// Returns the name of a server in metrics.
fn instance(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

impl Stage {
    #[track_caller]
    fn start() -> Self {
        let server = Setup::new().config("lock.max-waiters 2").start();
        let without_module = Setup::new().without_module().start();
        server.client().ok(&contrib::user());
        // An ACL rule cannot name a command that the server does not know.
        without_module.client().ok(&contrib::user().replace(" +lock.queues", ""));
        let folder = TempDir::with_prefix("redis-lock-test-").expect("a temporary folder");
        let port = free_port();
        let exporter = Daemon::start(contrib::exporter(port), &folder.path().join("exporter.log"));
        let servers = [&server, &without_module].map(instance);
        let configuration = contrib::write_configuration(folder.path(), &servers, port);
        let prometheus = Prometheus::start(&configuration, folder.path());
        Self { prometheus, exporter, server, without_module, _folder: folder }
    }

    /// Returns the servers for which an expression has a value.
    #[track_caller]
    fn servers_with(&self, expression: &str) -> BTreeSet<String> {
        let series = self.prometheus.query(expression).into_iter().filter(|series| !series.value.is_nan());
        series.filter_map(|mut series| series.labels.remove("instance")).collect()
    }

    /// Waits until an expression has a value for this server, and for no other.
    #[track_caller]
    fn has_value(&self, expression: &str, server: &Server) {
        let expected = BTreeSet::from([instance(server)]);
        let has = || {
            self.grant_after_waiting();
            self.servers_with(expression) == expected
        };
        assert!(happens_within(PROMPT, has), "{expression}: {:?}", self.servers_with(expression));
    }

    fn grant_after_waiting(&self) {
        let mut holder = self.server.client();
        assert_eq!(holder.run("LOCK.ACQUIRE desk holder PX 5000"), 1);
        let mut waiter = Waiter::start(&self.server, "LOCK.ACQUIRE desk waiter PX 5000 BLOCK 0");
        assert_eq!(holder.run("LOCK.RELEASE desk holder"), 0);
        assert_eq!(waiter.reply(), 1);
        assert_eq!(holder.run("LOCK.RELEASE desk waiter"), 0);
    }
}

#[test]
fn metrics_arrive_in_dashboard_and_alerts() {
    let stage = Stage::start();
    let mut holder = stage.server.client_in(3);
    assert_eq!(holder.call(&[b"LOCK.ACQUIRE".as_slice(), LONG_KEY, b"holder", b"PX", b"600000"]), 1);
    let wait = [b"LOCK.ACQUIRE".as_slice(), LONG_KEY, b"waiter", b"PX", b"600000", b"BLOCK", b"0"];
    let _waiter = Waiter::start_on(&stage.server, stage.server.client_in(3), &wait);

    let queries = contrib::queries();
    assert!(queries.len() > 10, "{queries:?}");
    queries.iter().for_each(|query| stage.has_value(query, &stage.server));
    let alerts = stage.prometheus.alerts();
    for expression in alerts.values() {
        for selector in expression.split("redis_script_values").skip(1) {
            let (labels, _) = selector.split_once('}').expect("labels");
            stage.has_value(&format!("redis_script_values{labels}}}"), &stage.server);
        }
    }
    stage.has_value(&alerts["RedisLockModuleMissing"], &stage.without_module);

    metrics_equal_info(&stage);
    let refused = || {
        let _waiters =
            ["a", "b"].map(|token| Waiter::send(&stage.server, &format!("LOCK.ACQUIRE desk {token} BLOCK 50")));
        let mut other = stage.server.client();
        other.run("LOCK.ACQUIRE desk c BLOCK 50");
        stage.prometheus.fires("RedisLockRequestsRefused", &instance(&stage.server))
    };
    assert!(happens_within(PROMPT, refused), "the alert does not fire");
    let log = stage.exporter.log();
    assert!(!log.contains("level=err"), "the exporter's user has the rights that it needs:\n{log}");
}

/// Waits until each field of INFO lock is a metric with its value.
#[track_caller]
fn metrics_equal_info(stage: &Stage) {
    let all = format!("redis_script_values{{instance=\"{}\"}}", instance(&stage.server));
    let mut wrong = Vec::new();
    let equal = || {
        let info = stage.server.client().run("INFO lock").string();
        let metrics: BTreeMap<String, f64> =
            stage.prometheus.query(&all).into_iter().map(|it| (it.labels["key"].clone(), it.value)).collect();
        assert_eq!(metrics.get(LONG_METRIC), Some(&1.0));
        let fields: Vec<(&str, f64)> = info
            .lines()
            .filter_map(|line| line.split_once(':'))
            .filter(|(name, _)| *name != "lock_suspended_by") // A word, which the script shows as one metric for each reason.
            .map(|(name, value)| (name, value.trim_end().parse().expect("a number")))
            .collect();
        assert!(fields.len() > 20, "{info}");
        let differs = |&(name, value): &(&str, f64)| {
            metrics.get(name).is_none_or(|&metric| metric != value && !MOVING.contains(&name))
        };
        wrong = fields.into_iter().filter(differs).map(|(name, _)| name.to_owned()).collect();
        wrong.is_empty()
    };
    assert!(happens_within(PROMPT, equal), "{wrong:?}");
}
