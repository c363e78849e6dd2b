//! Users with several selectors, each of which has rights of its own to commands, keys and channels.

use support::listener::Listener;
use support::{Reply, Server, one_node};

use super::{are_refused, user};

/// A server outside of a cluster, and a node of one, where `alice` holds `{door}` and `{gate}`, and listeners have subscribed to
/// the channels `mine` and `yours`.
fn servers() -> [(Server, [Listener; 2]); 2] {
    [Server::start(), one_node::start()].map(|server| {
        let mut alice = server.client();
        for key in ["{door}", "{gate}"] {
            assert_eq!(alice.run(&format!("LOCK.ACQUIRE {key} alice")), 1);
        }
        let listeners = ["mine", "yours"].map(|channel| Listener::start(&server, channel));
        (server, listeners)
    })
}

#[test]
fn one_selector_allows_command_key_and_channel() {
    for (server, _listeners) in servers() {
        let rules =
            "resetchannels ~{door} +lock.acquire (~{gate} &mine +lock.acquire) (~{door} ~{gate} &yours +lock.reenter)";
        let mut guest = user(&server, "guest", rules);
        assert_eq!(guest.run("LOCK.ACQUIRE {gate} a PX 60000 BLOCK 0 NOTIFY mine"), Reply::waiting());
        assert_eq!(guest.run("LOCK.REENTER {gate} b PX 60000 BLOCK 0 NOTIFY yours"), Reply::waiting());
        assert_eq!(guest.run("LOCK.ACQUIRE {door} c PX 60000"), Reply::Nil);
        are_refused(
            &mut guest,
            &[
                "LOCK.ACQUIRE {door} c PX 60000 BLOCK 0 NOTIFY mine",
                "LOCK.ACQUIRE {door} c PX 60000 BLOCK 0 NOTIFY yours",
                "LOCK.ACQUIRE {gate} c PX 60000 BLOCK 0 NOTIFY yours",
                "LOCK.REENTER {gate} c PX 60000 BLOCK 0 NOTIFY mine",
            ],
        );
        let log = server.client().run("ACL LOG 1");
        let entry = &log.items()[0];
        assert_eq!((entry.get("reason"), entry.get("object")), (Reply::text("channel"), Reply::text("mine")));
    }
}

#[test]
fn selectors_are_asked_in_transactions() {
    for (server, _listeners) in servers() {
        let rules = "resetchannels ~{door} +lock.acquire +multi +exec (~{door}2 &mine +lock.acquire)";
        let mut guest = user(&server, "guest", rules);
        guest.ok("MULTI");
        for key in ["{door}", "{door}2"] {
            let line = format!("LOCK.ACQUIRE {key} a PX 60000 BLOCK 0 NOTIFY mine");
            assert_eq!(guest.run(&line), "QUEUED");
        }
        let replies = guest.run("EXEC");
        assert_eq!(replies.items()[0].code(), "NOPERM");
        assert_eq!(replies.items()[1], 1);
    }
}

#[test]
fn selector_has_its_latest_rules() {
    for (server, _listeners) in servers() {
        let mut guest = user(&server, "guest", "resetchannels ~{door} +lock.acquire (~{gate} &mine +lock.acquire)");
        let line = "LOCK.ACQUIRE {door} a PX 60000 BLOCK 0 NOTIFY mine";
        are_refused(&mut guest, &[line]);
        server.client().ok("ACL SETUSER guest &mine");
        assert_eq!(guest.run(line), Reply::waiting());
        server.client().ok("ACL SETUSER guest resetchannels");
        are_refused(&mut guest, &[line]);
        server.client().ok("ACL SETUSER guest (~* &* +@all -lock.reenter)");
        assert_eq!(guest.run(line), Reply::waiting());
        are_refused(&mut guest, &["LOCK.REENTER {door} a PX 60000 BLOCK 0 NOTIFY mine"]);
    }
}

#[test]
fn patterns_with_parentheses_are_no_selectors() {
    for (server, _listeners) in servers() {
        let mut alice = server.client();
        assert_eq!(alice.run("LOCK.ACQUIRE (door) alice"), 1);
        let _listener = Listener::start(&server, "(mine)");
        let line = "LOCK.ACQUIRE (door) a PX 60000 BLOCK 0 NOTIFY (mine)";
        let root = ["resetchannels", "~(door)", "&(mine)", "+lock.acquire"];
        // A selector whose rules have parentheses is one argument.
        let other = ["resetchannels", "~x", "(~y +get)", "(~(door) &(mine) +lock.acquire)"];
        for rules in [root, other] {
            let mut guest = user(&server, "guest", "");
            let set = ["ACL", "SETUSER", "guest"].iter().chain(&rules).collect::<Vec<_>>();
            assert_eq!(alice.call(&set), "OK");
            assert_eq!(guest.run(line), Reply::waiting(), "{rules:?}");
            assert_eq!(alice.run("LOCK.RELEASE (door) a"), Reply::Nil);
        }
        let mut guest = user(&server, "guest", "resetchannels ~(door) +lock.acquire (~gate &* +lock.acquire)");
        are_refused(&mut guest, &[line]);
    }
}

/// Valkey 9.1 has rules for databases.
#[test]
fn selector_for_another_database_allows_nothing() {
    let server = Server::start();
    let mut alice = server.client();
    if alice.run("ACL SETUSER guest db=0") != "OK" {
        return;
    }
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let _listener = Listener::start(&server, "mine");
    let line = "LOCK.ACQUIRE door a PX 60000 BLOCK 0 NOTIFY mine";
    for rules in ["db=0 ~door &mine +lock.acquire (~x +get)", "~x (db=2,0 ~door &mine +lock.acquire)"] {
        let mut guest = user(&server, "guest", &format!("resetchannels {rules}"));
        assert_eq!(guest.run(line), Reply::waiting(), "{rules}");
        assert_eq!(alice.run("LOCK.RELEASE door a"), Reply::Nil);
    }
    let rules = "resetchannels db=0 ~door +lock.acquire (db=1 ~door &mine +lock.acquire)";
    are_refused(&mut user(&server, "guest", rules), &[line]);
}
