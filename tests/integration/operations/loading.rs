//! Loading and unloading. tests/scenarios/operations has the settings.

use std::fs;

use support::{Reply, Server, Setup, Waiter, eventually, repository, waiters_of};

const OLD_SERVER: &str = ".servers/redis-6.2/redis-server";

fn path_of_the_module() -> String {
    support::module_under_test().display().to_string()
}

#[test]
fn older_server_logs_what_is_needed() {
    let binary = repository().join(OLD_SERVER);
    assert!(binary.is_file(), "no {OLD_SERVER}: run `scripts/servers redis-6.2` first");
    let plain = Setup::new().old_binary(binary.clone()).without_module().try_start();
    assert!(plain.is_ok(), "the old server itself must run: {:?}", plain.err());
    let ended = Setup::new().old_binary(binary).try_start().err().expect("a refusal");
    let sentence = ended.log.lines().find(|line| line.contains("needs Redis 7.0"));
    assert!(sentence.is_some(), "no sentence in the log:\n{}", ended.log);
    assert!(ended.log.contains("Can't load module"), "the server's own words:\n{}", ended.log);
}

/// The versions of glibc whose functions the module's file needs.
fn needed_versions(file: &[u8]) -> Vec<[u32; 2]> {
    let mark = b"\0GLIBC_";
    let starts = file.windows(mark.len()).enumerate().filter(|(_, bytes)| bytes == mark).map(|(at, _)| at + mark.len());
    let names = starts.filter_map(|at| file[at..].split(|byte| *byte == 0).next()?.escape_ascii().to_string().into());
    let number = |part: Option<&str>| part.and_then(|part| part.parse().ok());
    let version = |name: String| {
        let mut parts = name.split('.');
        Some([number(parts.next())?, number(parts.next())?])
    };
    names.filter_map(version).collect()
}

#[test]
fn module_needs_no_newer_glibc_than_readme_says() {
    let readme = fs::read_to_string(repository().join("README.md")).expect("README.md");
    let (_, rest) = readme.split_once("glibc 2.").expect("a version of glibc");
    let named: u32 =
        rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).expect("digits");
    let needed = needed_versions(&fs::read(path_of_the_module()).expect("the module"));
    assert!(needed.len() > 3, "{needed:?}");
    assert!(needed.iter().all(|version| *version <= [2, named]), "the README says 2.{named}: {needed:?}");
}

#[test]
fn setting_out_of_range_stops_start() {
    for line in ["lock.max-waiters -5", "lock.max-block-ms soon", "lock.wake-foreign perhaps"] {
        let ended = Setup::new().config(line).try_start().err().unwrap_or_else(|| panic!("{line} was taken"));
        let name = line.split(' ').next().unwrap_or_default();
        assert!(ended.log.contains(name), "{line}: the log names it:\n{}", ended.log);
    }
    let unknown = Setup::new().config("lock.no-such-setting 1").try_start();
    assert!(unknown.is_err(), "a setting that does not exist was taken");
}

#[test]
fn unknown_argument_is_refused_with_reason() {
    let ended = Setup::new().module_args("max-waiters 5").try_start().err().expect("a refusal");
    let sentence = ended.log.lines().find(|line| line.contains("argument") && line.contains("lock"));
    assert!(sentence.is_some(), "no sentence in the log:\n{}", ended.log);

    let server = Setup::new().without_module().start();
    let mut client = server.client();
    let path = path_of_the_module();
    let refused = client.call(&["MODULE", "LOAD", &path, "unknown"]);
    assert!(refused.is_error(), "{refused:?}");
    assert_eq!(client.call(&["MODULE", "LOAD", &path]), "OK", "the server lives and the module loads");
    assert_eq!(client.run("LOCK.ACQUIRE door alice"), 1);
}

/// It writes them to replicas and the AOF by their names, where the server would drop what it does not know in silence.
#[test]
fn renamed_command_is_refused_with_reason() {
    for command in ["SET", "HSET", "PEXPIREAT", "DEL", "EXISTS", "SETRANGE", "HDEL"] {
        for name in ["\"\"", "hidden"] {
            let ended = Setup::new().config(&format!("rename-command {command} {name}")).try_start().err();
            let ended = ended.unwrap_or_else(|| panic!("the server runs without {command}"));
            let sentence = format!("it needs the command {command} under its own name");
            assert!(ended.log.contains(&sentence), "{}", ended.log);
        }
    }
    let server = Setup::new().config("rename-command FLUSHALL \"\"").start();
    assert_eq!(server.client().run("LOCK.ACQUIRE door alice"), 1, "others do not matter");
}

#[test]
fn module_loadex_takes_settings() {
    let server = Setup::new().without_module().start();
    let mut client = server.client();
    let path = path_of_the_module();
    let bad = client.call(&["MODULE", "LOADEX", &path, "CONFIG", "lock.max-waiters", "-5"]);
    assert!(bad.is_error(), "{bad:?}");
    let good = client.call(&["MODULE", "LOADEX", &path, "CONFIG", "lock.max-waiters", "9"]);
    assert_eq!(good, "OK");
    for (name, value) in [("lock.max-waiters", "9"), ("lock.max-block-ms", "0")] {
        assert_eq!(client.run(&format!("CONFIG GET {name}")).get(name), value);
    }
}

#[test]
fn reloaded_module_finds_locks_and_events() {
    let server = Server::start();
    let mut alice = server.client();
    for round in 0..3 {
        for free in ["DEL door", "PEXPIRE door 20", "FLUSHALL"] {
            assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 60000"), 1);
            let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
            alice.run(free);
            assert_eq!(bob.reply(), 1, "{free} in round {round}");
            assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
        }
        let mut carol = server.client();
        assert_eq!(carol.run("LOCK.REENTER shed carol PX 60000 SESSION"), 1);
        drop(carol);
        eventually("the session ends with its connection", || alice.run("EXISTS shed") == 0);

        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 60000"), 1);
        assert_eq!(alice.run("LOCK.REENTER gate alice"), 1);
        // Waits with every outcome.
        let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 5000");
        let mut short = Waiter::send(&server, "LOCK.ACQUIRE door short BLOCK 20");
        let closed = Waiter::start(&server, "LOCK.ACQUIRE door closed BLOCK 0");
        assert_eq!(short.reply(), Reply::Nil);
        drop(closed);
        eventually("one waits", || waiters_of(&mut alice, "door") == 1);
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(bob.reply(), 1);

        drop((bob, short));
        eventually("no connection keeps the module", || alice.run("MODULE UNLOAD lock") == "OK");
        assert!(alice.run("LOCK.INFO door").error().starts_with("ERR unknown command"));
        assert_eq!(alice.run("GET door"), "bob");
        assert_eq!(alice.run("HGET gate alice"), "1");
        assert_eq!(alice.call(&["MODULE", "LOAD", &path_of_the_module()]), "OK", "round {round}");
        assert_eq!(alice.run("LOCK.ACQUIRE door carol"), Reply::Nil);
        assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
        assert_eq!(alice.run("LOCK.RELEASE gate alice"), 0);
    }
}

#[test]
fn waiter_prevents_unload() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 60000"), 1);
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    let refused = alice.run("MODULE UNLOAD lock");
    assert!(refused.is_error(), "{refused:?}");
    assert!(bob.is_blocked());
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0, "it goes on working");
    assert_eq!(bob.reply(), 1);
    assert_eq!(alice.run("LOCK.ACQUIRE door bob"), 1);
    drop(bob);
    eventually("who waited has left", || alice.run("MODULE UNLOAD lock") == "OK");
}

#[test]
fn restarted_server_has_locks() {
    let setup = Setup::new().config("appendonly yes");
    let mut server = setup.start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    assert_eq!(alice.run("LOCK.REENTER gate alice"), 1);
    let end = alice.expires_at("door");
    server.shut_down("");
    let again = setup.in_directory_of(&server).start();
    let mut alice = again.client();
    assert_eq!(alice.expires_at("door"), end);
    assert_eq!(alice.run("LOCK.ACQUIRE door bob"), Reply::Nil);
    assert_eq!(alice.run("LOCK.REENTER gate alice"), 2);
    let mut bob = Waiter::start(&again, "LOCK.ACQUIRE door bob BLOCK 0");
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(bob.reply(), 1);
}
