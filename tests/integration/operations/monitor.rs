//! What MONITOR shows of the module: docs/operations.md, Keys.

use std::collections::BTreeSet;
use std::fs;

use support::{Client, Reply, Server, repository};

/// Returns the probes that the page names, for the key `key`.
fn documented() -> BTreeSet<String> {
    let page = fs::read_to_string(repository().join("docs/operations.md")).expect("the page");
    let line = page.lines().find(|line| line.starts_with("MONITOR shows the probes")).expect("a line about MONITOR");
    line.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns the next command that no client has sent, as the page writes it. The line is
/// `1700000000.000000 [0 ?:0] "SETRANGE" "key" "0" ""`.
fn next_probe(monitor: &mut Client) -> String {
    loop {
        let Reply::Status(line) = monitor.receive() else { panic!("not a line of MONITOR") };
        let (caller, words) = line.split_once("] ").expect("a caller");
        if !caller.contains("127.0.0.1:") {
            let plain = |word: &str| if word == "\"\"" { word.to_owned() } else { word.replace('"', "") };
            return words.split(' ').map(plain).collect::<Vec<_>>().join(" ");
        }
    }
}

#[test]
fn probes_in_monitor_are_those_of_page() {
    let server = Server::start();
    let (mut client, mut monitor) = (server.client(), server.client());
    monitor.ok("MONITOR");
    let mut probe_of = |lock: &str| {
        assert_eq!(client.run(&format!("{lock} key alice PX 300 SESSION")), 1);
        // Before the first renewal.
        let probe = next_probe(&mut monitor);
        assert_eq!(client.run("LOCK.RELEASE key alice"), 0);
        probe
    };
    let probes: BTreeSet<String> =
        ["LOCK.ACQUIRE", "LOCK.REENTER", "LOCK.SHARE"].iter().map(|it| probe_of(it)).collect();
    assert_eq!(probes, documented());
}
