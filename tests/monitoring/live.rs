//! Alerts, panels and metrics with everything running.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use support::{Server, happens_within, now_ms};

use super::causes::{self, Crowd};
use super::prometheus::PROMPT;
use super::stage::{Stage, instance};
use super::{dashboard, picture, traffic};

/// What fires from the beginning on.
const MISSING: &str = "RedisLockModuleMissing";

/// These move while nothing happens.
const MOVING: [&str; 2] = ["lock_longest_wait_ms", "lock_recovery_ms"];

/// Waits until an alert fires for all servers with the module.
#[track_caller]
fn fires(stage: &Stage, alert: &str, seen: &mut BTreeSet<String>) {
    let instances = stage.instances();
    let mut silent = BTreeSet::new();
    let all = || {
        let firing = stage.prometheus.firing();
        let of_this = firing.into_iter().filter(|(name, _)| name == alert).map(|(_, instance)| instance);
        silent = &instances - &of_this.collect();
        silent.is_empty()
    };
    assert!(happens_within(PROMPT, all), "{alert} does not fire for {silent:?}");
    seen.insert(alert.to_owned());
}

/// Nothing fires but what says that one server has no module, although all metrics are there.
#[track_caller]
fn all_is_calm(stage: &Stage) {
    stage.has_values("redis_script_values{key=\"lock_waiters\"} and rate(redis_script_values[1m])");
    let expected = BTreeSet::from([(MISSING.to_owned(), instance(&stage.without_module))]);
    assert!(happens_within(PROMPT, || !stage.prometheus.firing().is_empty()), "{MISSING} does not fire");
    assert_eq!(stage.prometheus.firing(), expected);
}

/// Every field of INFO lock is a metric with its value, once nothing happens any more.
#[track_caller]
fn metrics_are_what_info_says(stage: &Stage, server: &Server) {
    let mut wrong = Vec::new();
    let equal = || {
        let info = server.client().run("INFO lock").string();
        let metrics = stage.metrics_of(server);
        let fields: Vec<(&str, f64)> = info
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name, value.trim_end().parse().expect("a number")))
            .collect();
        assert!(fields.len() > 20, "{info}");
        let differs = |&(name, value): &(&str, f64)| {
            metrics.get(name).is_none_or(|&metric| metric != value && !MOVING.contains(&name))
        };
        wrong = fields.into_iter().filter(differs).map(|(name, _)| name.to_owned()).collect();
        wrong.is_empty()
    };
    assert!(happens_within(PROMPT, equal), "{}: {wrong:?}", instance(server));
    assert_eq!(stage.metrics_of(server).get(causes::LONG_WAITED_FOR), Some(&1.0));
}

#[track_caller]
fn every_panel_has_data(stage: &Stage) {
    let queries = dashboard::queries();
    assert!(queries.len() > 10);
    for (title, query) in queries {
        eprintln!("{title}: {query}");
        stage.has_values(&query);
    }
}

#[test]
fn each_alert_fires_for_its_cause_every_panel_has_data_and_metrics_are_what_info_says() {
    let stage = Stage::open();
    let began = now_ms();
    let mut seen = BTreeSet::from([MISSING.to_owned()]);
    let _long: Vec<_> = stage.servers.iter().map(causes::wait_long).collect();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Ends the traffic also when a check fails.
        let end = EndOf(&over);
        stage.servers.iter().for_each(|server| traffic::begin(scope, server, &over));
        let sessions: Vec<_> = stage.servers.iter().map(causes::open_sessions).collect();
        all_is_calm(&stage);

        stage.has_values("redis_script_values{key=\"lock_sessions\"} >= 20");
        drop(sessions);
        let mut crowds: Vec<Crowd> = stage.servers.iter().map(Crowd::gather).collect();
        fires(&stage, "RedisLockManyWaiters", &mut seen);
        fires(&stage, "RedisLockSessionsDropped", &mut seen);
        crowds.iter_mut().for_each(Crowd::overflow);
        fires(&stage, "RedisLockRequestsRefused", &mut seen);
        every_panel_has_data(&stage);
        drop(crowds);

        stage.servers.iter().for_each(causes::lose_locks);
        fires(&stage, "RedisLockLostLocks", &mut seen);
        fires(&stage, "RedisLockLongWait", &mut seen);
        if let Some(file) = env::var_os("PLOT").filter(|file| !file.is_empty()) {
            let picture = picture::draw(&stage.prometheus, &instance(&stage.servers[0]), began, now_ms());
            fs::write(file, picture).expect("a file that can be written");
        }
        drop(end);
    });
    stage.servers.iter().for_each(|server| metrics_are_what_info_says(&stage, server));
    stage.servers.iter().for_each(causes::recover);
    fires(&stage, "RedisLockRecovery", &mut seen);
    assert_eq!(seen, stage.prometheus.alerts(), "each alert has fired");
    let said = stage.exporter.said();
    assert!(!said.contains("level=err"), "the exporter's user may do what the exporter does:\n{said}");
}

struct EndOf<'a>(&'a AtomicBool);

impl Drop for EndOf<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
