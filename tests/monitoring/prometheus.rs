//! The programs of Debian's packages, and what a Prometheus replies.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use support::{free_port, happens_within, repository};

/// How long it may take until there is a sample, on a busy machine.
pub const PROMPT: Duration = Duration::from_secs(40);

/// Returns a program of the machine, or the private copy of `scripts/setup monitoring`.
#[track_caller]
pub fn command(program: &str) -> Command {
    let folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
    let folders = folders.into_iter().chain([repository().join(".tools/monitoring/usr/bin")]);
    let path = folders.map(|folder| folder.join(program)).find(|path| path.is_file());
    Command::new(path.unwrap_or_else(|| panic!("no {program}: run `scripts/setup monitoring` first")))
}

/// A program that runs until this is dropped. Its log is shown if the test fails.
pub struct Daemon {
    process: Child,
    log: PathBuf,
}

impl Daemon {
    #[track_caller]
    pub fn start(mut command: Command, log: &Path) -> Self {
        let file = File::create(log).expect("a log file");
        let errors = file.try_clone().expect("a second handle of the log");
        let process = command.stdin(Stdio::null()).stdout(file).stderr(errors).spawn();
        Self { process: process.expect("a program that starts"), log: log.to_owned() }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Both fail only when the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if thread::panicking() {
            eprintln!("--- {}:\n{}", self.log.display(), self.log());
        }
    }
}

pub struct Prometheus {
    port: u16,
    _daemon: Daemon,
}

/// The labels of a time series, and its present value.
pub struct Series {
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

impl Prometheus {
    /// Starts it in a folder, and returns when it is ready.
    #[track_caller]
    pub fn start(configuration: &Path, folder: &Path) -> Self {
        let port = free_port();
        let mut prometheus = command("prometheus");
        prometheus
            .arg(format!("--config.file={}", configuration.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let daemon = Daemon::start(prometheus, &folder.join("prometheus.log"));
        let url = format!("http://127.0.0.1:{port}/-/ready");
        let ready = || minreq::get(&url).with_timeout(10).send().is_ok_and(|response| response.status_code == 200);
        assert!(happens_within(PROMPT, ready), "Prometheus is not ready");
        Self { port, _daemon: daemon }
    }

    /// Returns a list of the API.
    #[track_caller]
    fn get(&self, path: &str, parameter: (&str, &str), list: &str) -> Vec<Value> {
        let url = format!("http://127.0.0.1:{}/api/v1/{path}", self.port);
        let request = minreq::get(url).with_timeout(10).with_param(parameter.0, parameter.1);
        let reply: Value = request.send().expect("a reply").json().expect("JSON");
        reply["data"][list].as_array().unwrap_or_else(|| panic!("{parameter:?}: {reply}")).clone()
    }

    /// Returns the present values of an expression.
    #[track_caller]
    pub fn query(&self, expression: &str) -> Vec<Series> {
        let series = |reply: &Value| Series {
            labels: reply["metric"]
                .as_object()
                .expect("labels")
                .iter()
                .map(|(name, it)| (name.clone(), text(it)))
                .collect(),
            value: text(&reply["value"][1]).parse().expect("a number"),
        };
        self.get("query", ("query", expression), "result").iter().map(series).collect()
    }

    /// Returns the expressions of the alerts by their names.
    #[track_caller]
    pub fn alerts(&self) -> BTreeMap<String, String> {
        let groups = self.get("rules", ("type", "alert"), "groups");
        let rules = groups.iter().flat_map(|group| group["rules"].as_array().expect("rules"));
        rules.map(|rule| (text(&rule["name"]), text(&rule["query"]))).collect()
    }

    /// Returns whether an alert fires for a server.
    #[track_caller]
    pub fn fires(&self, alert: &str, instance: &str) -> bool {
        self.get("alerts", ("", ""), "alerts").iter().any(|it| {
            let labels = &it["labels"];
            it["state"] == "firing" && labels["alertname"] == alert && labels["instance"] == instance
        })
    }
}

#[track_caller]
fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}
