//! Figures that two texts have, or a text and a source.

use std::fs;

use support::repository;

fn read(name: &str) -> String {
    fs::read_to_string(repository().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the median of a package in the first table of docs/performance.md, in milliseconds.
fn median<'p>(performance: &'p str, package: &str) -> &'p str {
    let row = performance.lines().find_map(|line| line.strip_prefix(&format!("| {package}")));
    row.and_then(|row| row.split('|').nth(2)).unwrap_or_else(|| panic!("no row of {package}")).trim()
}

#[test]
fn figures_of_readme_are_those_of_performance() {
    let (readme, performance) = (read("README.md"), read("docs/performance.md"));
    let line = readme.lines().find(|line| line.contains("(docs/performance.md)") && line.contains("median"));
    let shown: Vec<&str> =
        line.expect("a sentence").split(" ms").filter_map(|part| part.split(' ').next_back()).collect();
    let measured = ["redis-lock-client by redis-py", "redis-py Lock"].map(|package| median(&performance, package));
    assert_eq!(shown[..2], measured);
}

/// The longest time for which a package's session keeps the lock of a process that has died.
#[test]
fn packages_say_how_long_lock_of_dead_process_stays() {
    for (source, grace, text) in [
        ("clients/python/src/redis_lock_client/request.py", "MAX_GRACE_MS = 1000\n", "clients/python/README.md"),
        ("clients/node/src/request.ts", "MAX_GRACE_MS = 1_000;", "clients/node/README.md"),
        ("clients/rust/src/request.rs", "GRACE: Duration = Duration::from_secs(1);", "clients/rust/src/lock.rs"),
    ] {
        assert!(read(source).contains(grace), "{source}: {grace}");
        assert!(
            read(text).contains("frees the lock a second after") || read(text).contains("free the lock a second after"),
            "{text}"
        );
    }
    assert!(read("docs/guides/sessions.md").contains("with the packages a second"));
}
