//! With whose rights scripts, functions and transactions run, and what a user needs for all that concerns every lock.

use support::{Reply, Server};

use super::{USE, are_refused, user};

#[test]
fn a_script_may_do_no_more_than_the_user_who_calls_it() {
    let server = Server::start();
    let call = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'token')";
    let mut without = user(&server, "without", "~* +eval");
    lacks_a_right(&without.call(&["EVAL", call, "1", "door"]));
    let mut mine = user(&server, "mine", "~mine +eval +lock.acquire");
    lacks_a_right(&mine.call(&["EVAL", "return redis.call('LOCK.ACQUIRE', 'door', 'token')", "0"]));
    assert_eq!(mine.call(&["EVAL", call, "1", "mine"]), 1);
    assert_eq!(server.client().run("EXISTS door"), 0);
}

/// What a script answers that was not allowed a command, in the words of each server.
#[track_caller]
fn lacks_a_right(reply: &Reply) {
    let known = ["permission", "can't run this command", "can't access at least one of the keys"];
    assert!(known.iter().any(|words| reply.error().contains(words)), "{reply:?}");
}

#[test]
fn a_function_may_do_no_more_than_the_user_who_calls_it() {
    let server = Server::start();
    let library = "#!lua name=locks\nredis.register_function('take', function(keys) \
                   return redis.call('LOCK.ACQUIRE', keys[1], 'token') end)";
    assert_eq!(server.client().call(&["FUNCTION", "LOAD", library]), "locks");
    let mut without = user(&server, "without", "~* +fcall");
    lacks_a_right(&without.run("FCALL take 1 door"));
    assert_eq!(server.client().run("EXISTS door"), 0);
    let mut with = user(&server, "with", "~* +fcall +lock.acquire");
    assert_eq!(with.run("FCALL take 1 door"), 1);
}

#[test]
fn a_transaction_with_a_command_that_is_refused_does_nothing() {
    let server = Server::start();
    let mut guest = user(&server, "guest", &format!("~mine {USE} +multi +exec"));
    guest.ok("MULTI");
    assert_eq!(guest.run("LOCK.ACQUIRE mine guest"), "QUEUED");
    are_refused(&mut guest, &["LOCK.ACQUIRE theirs guest"]);
    assert_eq!(guest.run("EXEC").code(), "EXECABORT");
    assert_eq!(server.client().run("DBSIZE"), 0);
}

#[test]
fn a_user_without_rules_may_do_nothing() {
    let server = Server::start();
    let mut nobody = user(&server, "nobody", "");
    are_refused(&mut nobody, &["LOCK.ACQUIRE door n", "LOCK.INFO door", "LOCK.QUEUES", "LOCK.SLOWLOG LEN", "PING"]);
    let mut keys = user(&server, "keys", "~* +@all");
    are_refused(&mut keys, &["LOCK.ACQUIRE door k PX 1000 BLOCK 0 NOTIFY news", "SSUBSCRIBE news"]);
}

#[test]
fn the_default_user_may_do_everything_until_it_is_told_otherwise() {
    let server = Server::start();
    assert_eq!(server.client().run("LOCK.ACQUIRE door anybody"), 1);
    let mut admin = user(&server, "admin", "~* &* +@all");
    admin.ok("ACL SETUSER default off");
    assert_eq!(server.client().run("LOCK.ACQUIRE door anybody").code(), "NOAUTH");
    admin.ok("ACL SETUSER default on >secret");
    let mut default = server.client();
    assert_eq!(default.run("LOCK.ACQUIRE door anybody").code(), "NOAUTH");
    default.ok("AUTH secret");
    assert_eq!(default.run("LOCK.ACQUIRE door anybody"), 1);
}

#[test]
fn what_concerns_every_lock_is_dangerous() {
    let server = Server::start();
    let mut guest = user(&server, "guest", "~* +@all -@dangerous");
    let lines = [
        "CONFIG SET lock.max-waiters 0",
        "CONFIG GET lock.*",
        "MODULE UNLOAD lock",
        "DEBUG SLEEP 0",
        "FLUSHALL",
        "FLUSHDB",
        "SWAPDB 0 1",
        "CLIENT PAUSE 1",
        "REPLICAOF NO ONE",
        "SHUTDOWN",
    ];
    are_refused(&mut guest, &lines);
    let mut listing = user(&server, "listing", "~* +@all -@dangerous -lock.queues -lock.slowlog");
    let of_all_locks = ["LOCK.QUEUES", "LOCK.SLOWLOG GET", "LOCK.SLOWLOG LEN", "LOCK.SLOWLOG RESET"];
    are_refused(&mut listing, &of_all_locks);
    if server.flavour().has_acl_categories_for_modules() {
        are_refused(&mut guest, &of_all_locks);
    } else {
        // The commands of modules have no categories there, so the rule must name it.
        assert_eq!(guest.run("LOCK.QUEUES"), Reply::List(Vec::new()));
        assert_eq!(guest.run("LOCK.SLOWLOG GET"), Reply::List(Vec::new()));
    }
}

#[test]
fn write_commands_are_in_the_categories_of_the_server_where_it_lets_modules_choose_them() {
    let server = Server::start();
    let writer = user(&server, "writer", "~* +@write");
    // Where there are categories it may not take locks at all: they are the command's, and not the option's.
    let patient = user(&server, "patient", &format!("~* {USE} -@blocking"));
    let in_categories = server.flavour().has_acl_categories_for_modules();
    let (mut may, mut may_not) = if in_categories { (writer, patient) } else { (patient, writer) };
    for command in ["LOCK.ACQUIRE", "LOCK.REENTER", "LOCK.SHARE"] {
        assert_eq!(may.run(&format!("{command} {command} token")), 1);
        are_refused(&mut may_not, &[&format!("{command} {command}:other token")]);
    }
}
