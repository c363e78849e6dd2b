//! Loading, settings and unloading.

use std::fs;

use support::{Client, Reply, Server, Setup, Waiter, eventually, repository, waiters_of};

const OLD_SERVER: &str = ".servers/redis-6.2/redis-server";

fn path_of_the_module() -> String {
    support::module_under_test().display().to_string()
}

#[track_caller]
fn setting(client: &mut Client, name: &str) -> String {
    client.run(&format!("CONFIG GET {name}")).get(name).string()
}

#[test]
fn an_older_server_gets_a_sentence_that_says_what_is_needed() {
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
fn the_module_is_listed_by_name_and_version() {
    let server = Server::start();
    let list = server.client().run("MODULE LIST");
    // Some servers come with modules of their own.
    let module = list.items().iter().find(|module| module.get("name") == "lock").expect("a module called lock");
    assert!(module.get("ver").int() > 0);
}

#[test]
fn settings_have_defaults_and_are_set_by_config_set() {
    let server = Server::start();
    let mut client = server.client();
    for (name, default, other) in [
        ("lock.max-waiters", "100000", "7"),
        ("lock.max-block-ms", "0", "60000"),
        ("lock.max-lease-ms", "0", "20000"),
        ("lock.recovery-ms", "0", "29000"),
        ("lock.slowlog-ms", "1000", "0"),
        ("lock.slowlog-max-len", "128", "10000"),
        ("lock.wake-foreign", "no", "yes"),
    ] {
        assert_eq!(setting(&mut client, name), default);
        client.ok(&format!("CONFIG SET {name} {other}"));
        assert_eq!(setting(&mut client, name), other);
    }
}

#[test]
fn settings_are_read_from_the_configuration_file() {
    let server = Setup::new().config("lock.max-waiters 12\nlock.max-block-ms 3456\nlock.wake-foreign yes").start();
    let mut client = server.client();
    assert_eq!(setting(&mut client, "lock.max-waiters"), "12");
    assert_eq!(setting(&mut client, "lock.max-block-ms"), "3456");
    assert_eq!(setting(&mut client, "lock.wake-foreign"), "yes");
}

#[test]
fn settings_out_of_range_are_refused_and_leave_the_old_value() {
    let server = Server::start();
    let mut client = server.client();
    for name in ["lock.max-waiters", "lock.max-block-ms", "lock.slowlog-ms", "lock.slowlog-max-len"] {
        let before = setting(&mut client, name);
        for value in ["-1", "many", "1.5", "9223372036854775808", "99999999999999999999"] {
            let reply = client.run(&format!("CONFIG SET {name} {value}"));
            assert_eq!(reply.code(), "ERR", "{name} {value}");
            assert_eq!(setting(&mut client, name), before, "{name} {value}");
        }
    }
}

#[test]
fn a_setting_out_of_range_in_the_configuration_file_stops_the_start() {
    for line in ["lock.max-waiters -5", "lock.max-block-ms soon", "lock.wake-foreign perhaps"] {
        let ended = Setup::new().config(line).try_start().err().unwrap_or_else(|| panic!("{line} was taken"));
        let name = line.split(' ').next().unwrap_or_default();
        assert!(ended.log.contains(name), "{line}: the log names it:\n{}", ended.log);
    }
    let unknown = Setup::new().config("lock.no-such-setting 1").try_start();
    assert!(unknown.is_err(), "a setting that does not exist was taken");
}

#[test]
fn config_rewrite_keeps_the_settings() {
    let server = Server::start();
    let mut client = server.client();
    client.ok("CONFIG SET lock.max-waiters 55");
    client.ok("CONFIG SET lock.wake-foreign yes");
    client.ok("CONFIG REWRITE");
    let file = fs::read_to_string(server.directory().join("server.conf")).expect("the configuration");
    assert!(file.lines().any(|line| line == "lock.max-waiters 55"), "{file}");
    assert!(file.lines().any(|line| line == "lock.wake-foreign yes"), "{file}");
    assert!(file.lines().any(|line| line.starts_with("loadmodule ")), "{file}");
}

#[test]
fn an_unknown_argument_is_refused_with_a_sentence() {
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
fn a_command_that_it_needs_under_another_name_is_refused_with_a_sentence() {
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
    assert_eq!(setting(&mut client, "lock.max-waiters"), "9");
    assert_eq!(setting(&mut client, "lock.max-block-ms"), "0");
}

#[test]
fn it_can_be_unloaded_when_nobody_waits_and_loaded_again_with_the_locks_in_place() {
    let server = Server::start();
    let mut alice = server.client();
    let path = path_of_the_module();
    for round in 0..3 {
        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 60000"), 1);
        assert_eq!(alice.run("LOCK.REENTER gate alice"), 1);
        // Waits of every outcome have come and gone.
        let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 5000");
        let mut short = Waiter::send(&server, "LOCK.ACQUIRE door short BLOCK 20");
        let gone = Waiter::start(&server, "LOCK.ACQUIRE door gone BLOCK 0");
        assert_eq!(short.reply(), Reply::Nil);
        drop(gone);
        eventually("one waits", || waiters_of(&mut alice, "door") == 1);
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(bob.reply(), 1);

        drop((bob, short));
        eventually("those who waited have left", || alice.run("MODULE UNLOAD lock") == "OK");
        assert!(alice.run("LOCK.INFO door").error().starts_with("ERR unknown command"));
        assert_eq!(alice.run("GET door"), "bob");
        assert_eq!(alice.run("HGET gate alice"), "1");
        assert_eq!(alice.call(&["MODULE", "LOAD", &path]), "OK", "round {round}");
        assert_eq!(alice.run("LOCK.ACQUIRE door carol"), Reply::Nil);
        assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
        assert_eq!(alice.run("LOCK.RELEASE gate alice"), 0);
    }
}

#[test]
fn loaded_again_it_hears_again_what_happens_to_keys_and_connections() {
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
        assert_eq!(carol.run("LOCK.REENTER gate carol PX 60000 SESSION"), 1);
        drop(carol);
        eventually("the session ends with its connection", || alice.run("EXISTS gate") == 0);

        eventually("no timer runs", || alice.run("MODULE UNLOAD lock") == "OK");
        assert_eq!(alice.call(&["MODULE", "LOAD", &path_of_the_module()]), "OK", "round {round}");
    }
}

#[test]
fn it_cannot_be_unloaded_while_somebody_waits() {
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
fn a_restart_with_the_module_finds_the_locks_of_before() {
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
