//! The Python package of this repository compared with redis-py's Lock, in one process: what `bench/peers/ratios.py` measures.

use std::collections::HashMap;
use std::process::Command;

use support::{Server, python, repository};

use crate::section::{Bar, Effort};

/// The bars of the package. A ratio is a number of acquisitions a second to that of redis-py's Lock.
pub fn bars(server: &Server, effort: Effort) -> Vec<Bar> {
    let figures = measure(server, effort.choose("1", "0.1"));
    let value = |name: &str| *figures.get(name).unwrap_or_else(|| panic!("ratios.py has no figure {name}"));
    let ratio = |what: &str, name, limit| Bar::at_least(format!("{what}, ratio to redis-py Lock"), value(name), limit);
    let most = |what: &str, name, limit| Bar::at_most(what.to_owned(), value(name), limit);
    vec![
        ratio("redis-lock-client, one thread", "one-thread", 1.0),
        ratio("redis-lock-client, one asyncio task", "one-task", 1.0),
        ratio("redis-lock-client, 100 asyncio tasks with a lock each", "hundred-tasks", 1.4),
        most("threads of redis-lock-client for 150 requests with a client each", "threads", 1.0),
        most("connections of redis-lock-client for 150 requests with a client each", "connections", 1.0),
        most("redis-lock-client, percentage of a core for 2000 waiting tasks", "idle", 2.0),
    ]
}

fn measure(server: &Server, seconds: &str) -> HashMap<String, f64> {
    let script = repository().join("bench/peers/ratios.py");
    let mut command = Command::new(python::interpreter());
    let output = command.env("PYTHONDONTWRITEBYTECODE", "1").arg(script).arg(server.port().to_string()).arg(seconds);
    let output = output.output().expect("ratios.py runs");
    assert!(output.status.success(), "ratios.py: {}", String::from_utf8_lossy(&output.stderr));
    let figure = |line: &str| {
        let (name, number) = line.split_once(' ')?;
        Some((name.to_owned(), number.parse().ok()?))
    };
    String::from_utf8_lossy(&output.stdout).lines().filter_map(figure).collect()
}
