//! Taking the module out of a server, step by step: docs/guides/migration.md.

use std::fs;

use support::{Reply, Server, Setup, module_under_test, repository};

/// What the page says of the log of a server that does not start.
const RULE: &str =
    "Error loading ACL rule '+lock.acquire' for the user named 'shop': Unknown command or category name in ACL";
const RULE_IN_ACL_FILE: &str = "Error in applying operation '+lock.acquire': Unknown command or category name in ACL";
const SETTING: &str = "Module Configuration detected without loadmodule directive or no ApplyConfig call: aborting";
const FILE: &str = "Can't load module from /usr/local/lib/redis/modules/redis-lock.so: server aborting";

fn loadmodule() -> String {
    format!("loadmodule {}", module_under_test().display())
}

/// Starts a server with the files of another one, and these lines.
fn start_again(server: &Server, lines: &[&str]) -> Server {
    let setup = Setup::new().without_module().config("appendonly yes").config(&lines.join("\n"));
    setup.in_directory_of(server).start()
}

#[test]
fn server_starts_after_each_step_of_removal() {
    let load = loadmodule();
    let lines = [
        "user shop on nopass ~* -@all +get +lock.acquire",
        "user shop on nopass ~* -@all +get",
        "lock.max-waiters 50",
        &load,
    ];
    let mut server = Setup::new().without_module().config("appendonly yes").config(&lines[2..].join("\n")).start();
    assert_eq!(server.client().run("LOCK.ACQUIRE door alice PX 600000"), 1);
    let end = server.client().expires_at("door");
    let [rule, no_rule, setting, load] = lines;
    for left in [&[rule, setting, load][..], &[no_rule, setting, load], &[no_rule, load], &[no_rule]] {
        server.shut_down("");
        let next = start_again(&server, left);
        assert_eq!(next.client().run("GET door"), "alice", "{left:?}");
        assert_eq!(next.client().expires_at("door"), end, "{left:?}");
        server = next;
    }
    assert!(server.client().run("LOCK.INFO door").error().starts_with("ERR unknown command"));
}

#[test]
fn skipped_step_of_removal_stops_start() {
    let folder = env!("CARGO_TARGET_TMPDIR");
    let acl_file = format!("{folder}/removal.acl");
    fs::write(&acl_file, "user default on nopass ~* &* +@all\nuser shop on nopass ~* +lock.acquire\n").expect("a file");
    let included = format!("{folder}/removal.conf");
    fs::write(&included, "lock.max-waiters 50\n").expect("a file");
    let page = fs::read_to_string(repository().join("docs/guides/migration.md")).expect("the page");
    for (line, message) in [
        ("user shop on nopass ~* +lock.acquire", RULE),
        (&format!("aclfile {acl_file}"), RULE_IN_ACL_FILE),
        ("lock.max-waiters 50", SETTING),
        (&format!("include {included}"), SETTING),
        ("loadmodule /usr/local/lib/redis/modules/redis-lock.so", FILE),
    ] {
        // A module may be installed on this machine.
        let line = &line.replace("/usr/local/lib/", "/nowhere/");
        let ended = Setup::new().without_module().config(line).try_start().err();
        let ended = ended.unwrap_or_else(|| panic!("the server starts with {line}"));
        let logged = ended.log.replace("/nowhere/", "/usr/local/lib/");
        assert!(logged.contains(message), "{line}:\n{logged}");
        assert!(page.contains(&format!("| `{message}` |")), "not on the page: {message}");
    }
}

#[test]
fn denying_acl_rule_stops_start() {
    for rule in ["-lock.info", "-@lock", "+@lock", "(+lock.acquire ~door)"] {
        let ended =
            Setup::new().without_module().config(&format!("user shop on nopass ~* +@all {rule}")).try_start().err();
        let ended = ended.unwrap_or_else(|| panic!("the server starts with {rule}"));
        assert!(ended.log.contains("Unknown command or category name in ACL"), "{}", ended.log);
    }
}

/// ACL SETUSER with `-lock.acquire` is not enough on most servers.
#[test]
fn rewritten_user_without_lock_commands_starts() {
    let mut server = Server::start();
    let mut admin = server.client();
    admin.ok("ACL SETUSER shop on nopass ~* -@all +get +lock.acquire");
    admin.ok("ACL SETUSER shop -lock.acquire");
    let rules = admin.run("ACL GETUSER shop").get("commands").string();
    assert_eq!(rules.contains("lock."), server.flavour().has_module_acl_categories(), "{rules}");
    admin.ok("ACL SETUSER shop -@all +get");
    admin.ok("CONFIG REWRITE");
    server.shut_down("");
    let file = fs::read_to_string(server.directory().join("server.conf")).expect("the configuration");
    let user: Vec<&str> = file.lines().filter(|line| line.starts_with("user shop ")).collect();
    let next = start_again(&server, &user);
    assert_eq!(next.client().run("GET door"), Reply::Nil);
}

#[test]
fn rewrite_before_restart_restores_lines() {
    let server = Setup::new().config("lock.max-waiters 50").start();
    let path = server.directory().join("server.conf");
    let file = fs::read_to_string(&path).expect("the configuration");
    let names_module = |line: &str| line.starts_with("loadmodule ") || line.starts_with("lock.");
    let edited: Vec<&str> = file.lines().filter(|line| !names_module(line)).collect();
    fs::write(&path, edited.join("\n")).expect("a writable file");
    server.client().ok("CONFIG REWRITE");
    let file = fs::read_to_string(&path).expect("the configuration");
    assert_eq!(file.lines().filter(|line| names_module(line)).count(), 2, "{file}");
}
