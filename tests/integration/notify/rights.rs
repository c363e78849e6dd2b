//! What the server knows of NOTIFY: the arguments, the keys and the right to the channel, in a cluster and without one.

use support::listener::Listener;
use support::{Client, Reply, Server, one_node, waiters_of};

/// How the mutex and the re-entrant lock are taken.
const TAKE: [&str; 2] = ["LOCK.ACQUIRE", "LOCK.REENTER"];

/// A server outside of a cluster, and a node of one.
fn servers() -> [Server; 2] {
    [Server::start(), one_node::start()]
}

/// A guest who may do all but use channels other than `mine`.
#[track_caller]
fn guest(server: &Server) -> Client {
    server.client().ok("ACL SETUSER guest on nopass ~* +@all resetchannels &mine");
    let mut guest = server.client();
    guest.ok("AUTH guest x");
    guest
}

#[test]
fn the_channel_is_a_documented_argument() {
    for server in servers() {
        for take in TAKE {
            let docs = server.client().run(&format!("COMMAND DOCS {take}")).get(&take.to_lowercase());
            let arguments = docs.get("arguments");
            let channel = arguments.items().iter().find(|argument| argument.get("name") == "channel");
            let channel = channel.unwrap_or_else(|| panic!("{take}: {arguments:?}"));
            assert_eq!(channel.get("token"), "NOTIFY");
            assert_eq!(channel.get("type"), "string");
            assert_eq!(channel.get("flags"), Reply::list([Reply::Status("optional".to_owned())]));
        }
    }
}

#[test]
fn the_lock_stays_the_only_key_and_at_a_place_that_clients_know() {
    for server in servers() {
        let mut client = server.client();
        for take in TAKE {
            let info = client.run(&format!("COMMAND INFO {take}")).items()[0].clone();
            let flags: Vec<String> = info.items()[2].items().iter().map(Reply::string).collect();
            assert!(!flags.contains(&"movablekeys".to_owned()), "{take}: {flags:?}");
            assert_eq!(info.items()[3..6], [1, 1, 1].map(Reply::Int), "{take}");
            let keys = client.run(&format!("COMMAND GETKEYS {take} door bob PX 1000 BLOCK 0 NOTIFY news"));
            assert_eq!(keys, Reply::list([Reply::text("door")]), "{take}");
        }
    }
}

#[test]
fn without_the_right_to_the_channel_nothing_is_taken_and_nobody_waits() {
    for server in servers() {
        let mut alice = server.client();
        let mut guest = guest(&server);
        let [_yours, _mine] = ["yours", "mine"].map(|channel| Listener::start(&server, channel));
        assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
        for take in TAKE {
            for key in ["door", "free"] {
                let reply = guest.run(&format!("{take} {key} guest PX 1000 BLOCK 0 NOTIFY yours"));
                assert_eq!(reply.code(), "NOPERM", "{take} {key}: {reply:?}");
            }
        }
        assert_eq!(alice.run("EXISTS free"), 0);
        assert_eq!(waiters_of(&mut alice, "door"), 0);
        assert_eq!(guest.run("LOCK.ACQUIRE free guest PX 1000 BLOCK 0 NOTIFY mine"), 1);
        let reply = guest.run("LOCK.ACQUIRE door guest PX 1000 BLOCK 0 NOTIFY mine");
        assert_eq!(reply, Reply::waiting());
        // The word that stands elsewhere is no channel.
        assert_eq!(guest.run("LOCK.ACQUIRE notify NOTIFY PX 1000 BLOCK 0"), 1);
    }
}

#[test]
fn in_a_transaction_the_right_is_asked_for_when_the_command_runs() {
    for server in servers() {
        let mut guest = guest(&server);
        guest.ok("MULTI");
        assert_eq!(guest.run("LOCK.ACQUIRE {door} guest PX 1000 BLOCK 0 NOTIFY yours"), "QUEUED");
        assert_eq!(guest.run("EXEC").items()[0].code(), "NOPERM");
        assert_eq!(server.client().run("EXISTS {door}"), 0);
    }
}

#[test]
fn the_right_to_a_channel_is_none_to_the_key() {
    for server in servers() {
        server.client().ok("ACL SETUSER guest on nopass ~mine* +@all resetchannels &mine*");
        let mut guest = server.client();
        guest.ok("AUTH guest x");
        for take in TAKE {
            for line in ["yours guest", "yours guest PX 1000 BLOCK 0", "yours guest PX 1000 BLOCK 0 NOTIFY mine"] {
                assert_eq!(guest.run(&format!("{take} {line}")).code(), "NOPERM", "{take} {line}");
            }
        }
        assert_eq!(server.client().run("EXISTS yours"), 0);
    }
}

#[test]
fn a_refused_channel_is_in_the_log_of_the_acl() {
    for server in servers() {
        let mut guest = guest(&server);
        assert_eq!(guest.run("LOCK.ACQUIRE door guest PX 1000 BLOCK 0 NOTIFY yours").code(), "NOPERM");
        let log = server.client().run("ACL LOG");
        let entry = &log.items()[0];
        assert_eq!(entry.get("reason"), "channel");
        assert_eq!(entry.get("object"), "yours");
        assert_eq!(entry.get("username"), "guest");
    }
}

#[test]
fn who_loses_the_right_is_not_asked_again_for_what_waits_already() {
    for server in servers() {
        let mut alice = server.client();
        let mut guest = guest(&server);
        let mut listener = Listener::start(&server, "mine");
        assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
        let ask = "LOCK.ACQUIRE door guest PX 60000 BLOCK 0 NOTIFY mine";
        assert_eq!(guest.run(ask), Reply::waiting());
        alice.ok("ACL SETUSER guest resetchannels");
        assert_eq!(guest.run(ask).code(), "NOPERM");
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
        listener.hears("granted", "guest", "door");
    }
}
