//! Configurations that are shown as complete, or that belong together: redis.conf.example, the guide to failovers and
//! packaging/docker.

use std::fs;
use std::process::{Command, Stdio};

use support::{Client, Protocol, Setup, eventually, free_port, module_under_test, repository, server_under_test};

use super::programs::Running;

/// The files with the settings of docs/guides/failover.md.
const WITH_RECOVERY: [&str; 3] = ["redis.conf.example", "docs/guides/failover.md", "packaging/docker/compose.yaml"];

/// The folder into which Debian's units let Redis write, and the one from which they let it load modules.
const DATA: &str = "/var/lib/redis";
const MODULES: &str = "/usr/lib/";

fn read(name: &str) -> String {
    fs::read_to_string(repository().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the number that follows a setting's name, also in a table or on a command line.
fn number(text: &str, setting: &str) -> Option<u64> {
    let values = text.split(setting).skip(1).map(|rest| rest.trim_start_matches([' ', '`', '|']));
    values.into_iter().find_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
}

/// Returns the milliseconds that are missing in the recovery period, by the formula of docs/guides/failover.md without C. Settings that
/// are not named have the defaults of the servers.
fn missing_ms(text: &str) -> u64 {
    let [lease, recovery] = ["lock.max-lease-ms", "lock.recovery-ms"].map(|name| number(text, name));
    let lag = number(text, "min-replicas-max-lag").unwrap_or(10);
    let timeout = number(text, "repl-timeout").unwrap_or(60);
    let needed = lease.expect("a longest lease") + 1000 * (lag + 3 + timeout);
    needed.saturating_sub(recovery.expect("a recovery period"))
}

#[test]
fn recovery_period_of_each_configuration_suffices() {
    for name in WITH_RECOVERY {
        let text = read(name);
        assert_eq!(missing_ms(&text), 0, "{name}: lock.recovery-ms is too short by that");
        assert!(number(&text, "repl-ping-replica-period") < number(&text, "repl-timeout"), "{name}");
    }
}

#[test]
fn too_short_recovery_period_is_found() {
    let settings = "# lock.max-lease-ms 20000\n# lock.recovery-ms 37000\n";
    assert_eq!(missing_ms(&format!("min-replicas-max-lag 10\n{settings}")), 56_000);
    assert_eq!(missing_ms(&format!("| `min-replicas-max-lag` | 5 |\n--repl-timeout 9 {settings}")), 0);
    assert_eq!(missing_ms(&format!("min-replicas-max-lag 5\nrepl-timeout 10\n{settings}")), 1000);
}

/// Debian's units start the server in a folder into which it may not write.
#[test]
fn example_configuration_starts_under_debian_units() {
    let text = read("redis.conf.example");
    let loads = text.lines().find_map(|line| line.strip_prefix("loadmodule ")).expect("it loads the module");
    assert!(loads.starts_with(MODULES), "{loads}");
    let mut first = Setup::new().start();
    first.shut_down("");
    let data = first.directory().display().to_string();
    // Those of the test.
    let others = ["loadmodule", "port", "bind"];
    let lines = text.lines().filter(|line| !others.contains(&line.split(' ').next().unwrap_or_default()));
    let lines = lines.collect::<Vec<_>>().join("\n").replace(DATA, &data);
    let setup = Setup::new().config("dir /proc").config(&lines).in_directory_of(&first);
    let server = setup.start();
    let mut client = server.client();
    assert_eq!(client.run("CONFIG GET maxmemory-policy").get("maxmemory-policy"), "noeviction");
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 9000"), 1);
}

/// README's first command, behind the build. The folders of Debian's units need not exist.
#[test]
fn server_of_make_run_starts_anywhere() {
    let (port, program) = (free_port(), repository().join("scripts/run"));
    let run = Command::new(program)
        .env("PORT", port.to_string())
        .env("MODULE", module_under_test())
        .env("SERVER", server_under_test())
        .stdout(Stdio::null())
        .spawn();
    let mut server = Running::of(run.expect("scripts/run"));
    eventually("the server answers", || {
        assert!(!server.has_ended(), "scripts/run has ended");
        Client::connect(port, Protocol::Resp2).is_some()
    });
    let mut client = Client::connect(port, Protocol::Resp2).expect("a connection");
    assert_eq!(client.run("LOCK.ACQUIRE door a-81f3 PX 30000"), 1);
    let folder = client.run("CONFIG GET dir").get("dir").string();
    assert!(folder.contains(&format!("target/run/{port}-")), "{folder}");
    let text = fs::read_to_string(format!("{folder}/redis.conf")).expect("its configuration");
    assert!(!text.lines().any(|line| line.starts_with("dir ")), "{text}");
    drop(server);
    fs::remove_dir_all(folder).expect("its folder");
}
