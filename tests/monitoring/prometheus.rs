//! A Prometheus of the test's own, and what it answers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use support::{free_port, happens_within};

use super::programs::{Daemon, command};

/// How long it may take until a sample is there: to scrape, to evaluate, on a busy machine.
pub const PROMPT: Duration = Duration::from_secs(40);

pub struct Prometheus {
    port: u16,
    _daemon: Daemon,
}

/// The labels of a time series, and its values by their time in seconds. The last of them is the value now.
pub struct Series {
    pub labels: BTreeMap<String, String>,
    pub points: Vec<(f64, f64)>,
}

impl Prometheus {
    /// Starts it in a folder, and waits until it is ready.
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

    #[track_caller]
    fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let url = format!("http://127.0.0.1:{}/api/v1/{path}", self.port);
        let request = parameters
            .iter()
            .fold(minreq::get(url).with_timeout(10), |url, (name, value)| url.with_param(*name, *value));
        let answer: Value = request.send().expect("an answer").json().expect("JSON");
        assert_eq!(answer["status"], "success", "{parameters:?}: {answer}");
        answer["data"].clone()
    }

    /// The present values of an expression.
    #[track_caller]
    pub fn query(&self, expression: &str) -> Vec<Series> {
        self.get("query", &[("query", expression)])["result"]
            .as_array()
            .expect("series")
            .iter()
            .map(Series::of)
            .collect()
    }

    /// The values of an expression, one for each second.
    #[track_caller]
    pub fn history(&self, expression: &str, from: f64, to: f64) -> Vec<Series> {
        let [from, to] = [from, to].map(|time| time.to_string());
        let parameters = [("query", expression), ("start", &*from), ("end", &*to), ("step", "1")];
        self.get("query_range", &parameters)["result"].as_array().expect("series").iter().map(Series::of).collect()
    }

    /// The names of all alerts that the rules have.
    #[track_caller]
    pub fn alerts(&self) -> BTreeSet<String> {
        let groups = self.get("rules", &[("type", "alert")])["groups"].clone();
        let rules =
            groups.as_array().expect("groups").iter().flat_map(|group| group["rules"].as_array().expect("rules"));
        rules.map(|rule| text(&rule["name"])).collect()
    }

    /// Which alerts fire for which servers.
    #[track_caller]
    pub fn firing(&self) -> BTreeSet<(String, String)> {
        let alerts = self.get("alerts", &[])["alerts"].clone();
        let firing = alerts.as_array().expect("alerts").iter().filter(|alert| alert["state"] == "firing");
        firing.map(|alert| (text(&alert["labels"]["alertname"]), text(&alert["labels"]["instance"]))).collect()
    }
}

impl Series {
    fn of(answer: &Value) -> Self {
        let labels = answer["metric"].as_object().expect("labels");
        let labels = labels.iter().map(|(name, value)| (name.clone(), text(value))).collect();
        let points = match answer.get("values") {
            Some(values) => values.as_array().expect("values").iter().map(point).collect(),
            None => vec![point(&answer["value"])],
        };
        Self { labels, points }
    }

    /// What a label says; nothing if there is no such label.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }

    #[track_caller]
    pub fn value(&self) -> f64 {
        self.points.last().expect("a value").1
    }
}

#[track_caller]
fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

#[track_caller]
fn point(value: &Value) -> (f64, f64) {
    (value[0].as_f64().expect("a time"), text(&value[1]).parse().expect("a number"))
}
