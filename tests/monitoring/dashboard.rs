//! The queries of the dashboard, with what Grafana puts into them.

use serde_json::Value;

use super::contrib::{path, read};

/// Title and query of each line of each panel.
#[track_caller]
pub fn queries() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&read(&path("grafana/redis-lock.json"))).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    panels.iter().flat_map(queries_of).collect()
}

fn queries_of(panel: &Value) -> Vec<(String, String)> {
    let title = panel["title"].as_str().expect("a title");
    let targets = panel["targets"].as_array().expect("queries");
    assert!(!targets.is_empty(), "{title}: a panel shows something");
    let query = |target: &Value| target["expr"].as_str().expect("a query").to_owned();
    targets.iter().map(|target| (title.to_owned(), filled_in(&query(target)))).collect()
}

/// The variables of the dashboard and of Grafana: all servers, and four times the interval of scraping at least.
#[track_caller]
fn filled_in(query: &str) -> String {
    assert!(query.contains("instance=~\"$instance\""), "{query}: the reader chooses servers");
    let query = query.replace("$instance", ".*").replace("$__rate_interval", "1m");
    assert!(!query.contains("[$"), "{query}: a variable that is not known");
    query
}
