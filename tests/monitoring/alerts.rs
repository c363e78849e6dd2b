//! The rules as they are in contrib/: promtool takes them, and its tests have the time in which each alert begins to fire.

use std::collections::BTreeSet;

use super::contrib::{RULES, path, read};
use super::programs::command;

const TESTS: &str = "prometheus/redis-lock.test.yml";

#[track_caller]
fn promtool_accepts(what: &[&str], file: &str) {
    let output = command("promtool").args(what).arg(path(file)).output().expect("promtool");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "promtool {what:?} {file}:\n{said}");
}

/// The words behind a key, one for each line that has it.
fn values(file: &str, key: &str) -> BTreeSet<String> {
    let text = read(&path(file));
    text.lines().filter_map(|line| line.trim_start().strip_prefix(key)).map(|word| word.trim().to_owned()).collect()
}

#[test]
fn promtool_takes_the_configuration_and_the_rules() {
    promtool_accepts(&["check", "config"], "prometheus/prometheus.yml");
    promtool_accepts(&["check", "rules"], RULES);
}

#[test]
fn each_alert_begins_to_fire_in_time_and_not_before() {
    promtool_accepts(&["test", "rules"], TESTS);
    let alerts = values(RULES, "- alert:");
    assert!(alerts.len() >= 5, "{alerts:?}");
    assert_eq!(values(TESTS, "alertname:"), alerts);
}
