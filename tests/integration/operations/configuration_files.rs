//! Configuration files of a server with the module: what CONFIG REWRITE writes (docs/guides/upgrading.md), and what has to be
//! removed before the module (docs/guides/removal.md).

use std::fs;
use std::path::Path;
use std::process::Command;

use support::{Server, Setup, module_under_test, repository};

/// What the page says of the log of a server that does not start.
const RULE: &str =
    "Error loading ACL rule '+lock.acquire' for the user named 'shop': Unknown command or category name in ACL";
const RULE_IN_ACL_FILE: &str = "Error in applying operation '+lock.acquire': Unknown command or category name in ACL";
const SETTING: &str = "Module Configuration detected without loadmodule directive or no ApplyConfig call: aborting";
const FILE: &str = "Can't load module from /usr/local/lib/redis/modules/redis-lock.so: server aborting";

fn loadmodule() -> String {
    format!("loadmodule {}", module_under_test().display())
}

/// Writes a file and returns its path.
fn file(name: &str, text: &str) -> String {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&file, text).expect("a writable folder");
    file.display().to_string()
}

/// Returns the main file as CONFIG REWRITE leaves it, after which the server is shut down.
fn rewritten(server: &mut Server) -> String {
    server.client().ok("CONFIG REWRITE");
    server.shut_down("");
    let file = fs::read_to_string(server.directory().join("server.conf")).expect("the configuration");
    assert_eq!(file.matches("loadmodule ").count(), 1, "{file}");
    file
}

/// `loadmodule` is in an included file, or on the command line.
#[test]
fn rewritten_file_loads_module_twice_and_does_not_start() {
    let lines = format!("{}\nlock.max-waiters 50\n", loadmodule());
    let shell = format!("exec \"$@\" --{} --lock.max-waiters 50", loadmodule());
    let plain = Setup::new().without_module();
    let included = plain.clone().config(&format!("include {}", file("included.conf", &lines)));
    let with_arguments = plain.clone().run_by(&["sh", "-c", &shell, "sh"]);
    // The rewritten file has the line that includes the other one.
    for (first, again) in [(included, plain), (with_arguments.clone(), with_arguments)] {
        let mut server = first.start();
        let file = rewritten(&mut server);
        assert!(file.contains("\nlock.max-waiters 50\n"), "settings are written, too: {file}");
        let again = again.in_directory_of(&server).on_port(server.port());
        let ended = again.clone().config(&file).try_start().err().expect("a server that does not start");
        assert!(ended.log.contains("a module of this name is loaded already"), "{}", ended.log);
        // What the page says to do.
        let lines: Vec<&str> = file.lines().filter(|line| !line.starts_with("loadmodule ")).collect();
        let started = again.config(&lines.join("\n")).start();
        assert_eq!(started.client().run("LOCK.ACQUIRE door alice"), 1);
    }
}

#[test]
fn rewritten_file_with_its_own_loadmodule_starts() {
    for loaded_at_run_time in [false, true] {
        let mut server = if loaded_at_run_time { Setup::new().without_module().start() } else { Server::start() };
        let mut client = server.client();
        if loaded_at_run_time {
            client.ok(&format!("MODULE LOAD {}", module_under_test().display()));
        }
        let settings = [("lock.max-waiters", "50"), ("lock.wake-foreign", "yes")];
        settings.iter().for_each(|(name, value)| client.ok(&format!("CONFIG SET {name} {value}")));
        let file = rewritten(&mut server);
        let again = Setup::new().without_module().config(&file).in_directory_of(&server).on_port(server.port());
        let started = again.start();
        for (name, value) in settings {
            assert_eq!(started.client().run(&format!("CONFIG GET {name}")).get(name), value, "{file}");
        }
    }
}

/// The entry point of the official image of Redis loads modules on the command line.
#[test]
fn rewritten_file_starts_without_entry_point() {
    let shell = format!("exec \"$@\" --{}", loadmodule());
    let without = Setup::new().without_module();
    let mut server = without.clone().config("lock.max-waiters 50").run_by(&["sh", "-c", &shell, "sh"]).start();
    for _ in 0..2 {
        let file = rewritten(&mut server);
        let with = without
            .clone()
            .config(&file)
            .run_by(&["sh", "-c", &shell, "sh"])
            .in_directory_of(&server)
            .on_port(server.port());
        let ended = with.try_start().err().expect("a server that does not start");
        assert!(ended.log.contains("a module of this name is loaded already"), "{}", ended.log);
        server = without.clone().config(&file).in_directory_of(&server).on_port(server.port()).start();
        assert_eq!(server.client().run("LOCK.ACQUIRE door alice"), 1);
    }
    let path = file("container.conf", &rewritten(&mut server));
    let page = fs::read_to_string(repository().join("docs/guides/removal.md")).expect("the page");
    let (_, deletes) = page.split_once("--entrypoint sed redis:8 ").expect("a command for a container");
    let deletes = deletes.lines().next().expect("its end").replace("/etc/redis/redis.conf", &path);
    let status = Command::new("sh").args(["-c", &format!("sed {deletes}")]).status().expect("a shell");
    assert!(status.success(), "{deletes}");
    let left = fs::read_to_string(path).expect("the file");
    let server = without.config(&left).in_directory_of(&server).on_port(server.port()).start();
    assert!(server.client().run("LOCK.INFO door").error().starts_with("ERR unknown command"), "{left}");
}

#[test]
fn server_starts_after_each_step_of_removal() {
    let (rule, no_rule) = ("user shop on nopass ~* -@all +get +lock.acquire", "user shop on nopass ~* -@all +get");
    let (setting, load) = ("lock.max-waiters 50", &loadmodule());
    let setup = |lines: &[&str]| Setup::new().without_module().config("appendonly yes").config(&lines.join("\n"));
    let mut server = setup(&[setting, load]).start();
    assert_eq!(server.client().run("LOCK.ACQUIRE door alice PX 600000"), 1);
    let end = server.client().expires_at("door");
    for left in [&[rule, setting, load][..], &[no_rule, setting, load], &[no_rule, load], &[no_rule]] {
        server.shut_down("");
        server = setup(left).in_directory_of(&server).start();
        assert_eq!(server.client().run("GET door"), "alice", "{left:?}");
        assert_eq!(server.client().expires_at("door"), end, "{left:?}");
    }
    assert!(server.client().run("LOCK.INFO door").error().starts_with("ERR unknown command"));
}

#[test]
fn skipped_step_of_removal_stops_start() {
    let acl = "user default on nopass ~* &* +@all\nuser shop on nopass ~* +lock.acquire\n";
    let page = fs::read_to_string(repository().join("docs/guides/removal.md")).expect("the page");
    for (line, message) in [
        ("user shop on nopass ~* +lock.acquire", RULE),
        (&format!("aclfile {}", file("removal.acl", acl)), RULE_IN_ACL_FILE),
        ("lock.max-waiters 50", SETTING),
        (&format!("include {}", file("removal.conf", "lock.max-waiters 50\n")), SETTING),
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
