//! Loads of the module that succeed or fail, what the log says of them, and that the server does not crash.

use std::fs;

use support::{Client, Reply, Server, Setup, Waiter, module_under_test, repository};

const OLD_SERVER: &str = ".servers/redis-6.2/redis-server";

const ALREADY_LOADED: &str = "module lock is not loaded: a module of this name is loaded already";

fn path() -> String {
    module_under_test().display().to_string()
}

/// Loads the module with settings, and returns the reply.
fn load_with(client: &mut Client, settings: &[[&str; 2]]) -> Reply {
    let path = path();
    let settings = settings.iter().flat_map(|[name, value]| ["CONFIG", name, value]);
    client.call(&["MODULE", "LOADEX", &path].into_iter().chain(settings).collect::<Vec<_>>())
}

#[test]
fn older_server_logs_what_is_needed() {
    let binary = repository().join(OLD_SERVER);
    assert!(binary.is_file(), "no {OLD_SERVER}: run `scripts/servers redis-6.2` first");
    let plain = Setup::new().old_binary(binary.clone()).without_module().try_start();
    assert!(plain.is_ok(), "the old server itself must run: {:?}", plain.err());
    let ended = Setup::new().old_binary(binary).try_start().err().expect("a refusal");
    assert!(ended.log.contains("needs Redis 7.0"), "no sentence in the log:\n{}", ended.log);
    assert!(ended.log.contains("Can't load module"), "the server's own words:\n{}", ended.log);
}

/// Returns the minor versions of glibc 2 whose functions a file needs.
fn needed_versions(file: &[u8]) -> Vec<u32> {
    let mark = b"\0GLIBC_2.";
    let ends = file.windows(mark.len()).enumerate().filter(|(_, bytes)| bytes == mark).map(|(at, _)| at + mark.len());
    let digits = |at: usize| file[at..].iter().take_while(|byte| byte.is_ascii_digit()).copied().collect();
    ends.filter_map(|at| String::from_utf8(digits(at)).ok()?.parse().ok()).collect()
}

#[test]
fn module_needs_no_newer_glibc_than_documents_say() {
    let page = fs::read_to_string(repository().join("docs/install.md")).expect("docs/install.md");
    let (_, rest) = page.split_once("glibc 2.").expect("a version of glibc");
    let named: u32 =
        rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).expect("digits");
    let needed = needed_versions(&fs::read(path()).expect("the module"));
    assert!(needed.len() > 3, "{needed:?}");
    assert!(needed.iter().all(|version| *version <= named), "docs/install.md says 2.{named}: {needed:?}");
}

#[test]
fn wrong_configuration_stops_start_with_reason() {
    let module = module_under_test().display().to_string();
    for (line, reason) in [
        ("lock.max-waiters -5", "lock.max-waiters"),
        ("lock.max-block-ms soon", "lock.max-block-ms"),
        ("lock.wake-foreign perhaps", "lock.wake-foreign"),
        ("lock.no-such-setting 1", ""),
        (&format!("loadmodule {module}"), ALREADY_LOADED),
        (&format!("loadmodule {module}"), "is `loadmodule` given twice?"),
    ] {
        let ended = Setup::new().config(line).try_start().err().unwrap_or_else(|| panic!("{line} was taken"));
        assert!(ended.log.contains(reason), "{line}: {reason} is not in the log:\n{}", ended.log);
    }
    let ended = Setup::new().module_args("max-waiters 5").try_start().err().expect("a refusal");
    assert!(ended.log.contains("module lock is not loaded: it takes no arguments"), "{}", ended.log);
}

/// The module writes these commands to replicas and to the append-only file by their names.
#[test]
fn renamed_command_is_refused_with_reason() {
    for command in ["SET", "HSET", "PEXPIREAT", "DEL", "EXISTS", "SETRANGE", "HDEL"] {
        let ended = Setup::new().config(&format!("rename-command {command} hidden")).try_start().err();
        let ended = ended.unwrap_or_else(|| panic!("the server runs without {command}"));
        let sentence = format!("it needs the command {command} under its own name");
        assert!(ended.log.contains(&sentence), "{}", ended.log);
    }
    let server = Setup::new().config("rename-command FLUSHALL \"\"").start();
    assert_eq!(server.client().run("LOCK.ACQUIRE door alice"), 1, "others do not matter");
}

#[test]
fn second_load_is_refused_with_reason() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 60000"), 1);
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
    let copy = server.directory().join("copy.so");
    fs::copy(path(), &copy).expect("a copy of the module");
    for (number, path) in [(1, &path()), (2, &copy.display().to_string())] {
        assert!(alice.call(&["MODULE", "LOAD", path]).is_error(), "{path}");
        assert_eq!(server.log().matches(ALREADY_LOADED).count(), number, "{}", server.log());
    }
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0, "the module that is loaded goes on");
    assert_eq!(bob.reply(), 1);
}

/// The commands that load and unload the module are executed in one iteration of the event loop, and between them another
/// connection has a command of the module in its transaction: a server that unloads the module would crash at its EXEC.
#[test]
fn transaction_prevents_unload_after_load() {
    let server = Setup::new().without_module().start();
    let [mut sleeper, mut loader, mut queuing, mut unloader] = [(); 4].map(|()| server.client());
    sleeper.send(&["DEBUG", "SLEEP", "0.5"]);
    let pause = || std::thread::sleep(std::time::Duration::from_millis(50));
    pause();
    loader.send(&["MODULE", "LOAD", &path()]);
    pause();
    queuing.send_together(&["MULTI", "LOCK.ACQUIRE door bob", "GET key"]);
    pause();
    unloader.send(&["MODULE", "UNLOAD", "lock"]);
    assert_eq!(loader.receive(), "OK");
    assert!(unloader.receive().is_error());
    (0..3).for_each(|_| _ = queuing.receive());
    assert_eq!(queuing.run("EXEC").items().len(), 2);
    assert!(!loader.run("LOCK.INFO door").is_error());
}

/// The server loads the module, finds that a setting does not exist or has a wrong value, and has to unload it again. Most
/// servers crash if that is refused.
#[test]
fn wrong_setting_of_loadex_leaves_server_alive() {
    for settings in [
        &[["lock.no-such-setting", "5"]][..],
        &[["lock.recovery-ms", "20000"], ["lock.no-such-setting", "5"]],
        &[["lock.wake-foreign", "yes"], ["lock.max-waiters", "5"], ["other.setting", "5"]],
        &[["lock.max-waiters", "-5"]],
    ] {
        let server = Setup::new().without_module().start();
        let [mut admin, mut queuing] = [(); 2].map(|()| server.client());
        let _blocked = Waiter::start(&server, "BLPOP list 0");
        queuing.ok("MULTI");
        assert_eq!(queuing.run("PING"), "QUEUED");
        assert!(load_with(&mut admin, settings).is_error(), "{settings:?}");
        assert!(admin.run("LOCK.INFO door").error().starts_with("ERR unknown command"), "{settings:?}");
        assert_eq!(queuing.run("EXEC").items().len(), 1);

        assert_eq!(load_with(&mut admin, &[["lock.max-waiters", "9"]]), "OK");
        assert_eq!(admin.run("CONFIG GET lock.max-waiters").get("lock.max-waiters"), "9");
        assert_eq!(admin.run("LOCK.ACQUIRE door alice PX 60000"), 1);
        let mut bob = Waiter::send(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 50");
        assert_eq!(bob.reply(), Reply::Nil, "its timer runs");
    }
}
