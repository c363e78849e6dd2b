//! Calls of commands by another module, whose client has no connection that could close or receive a message.

use support::listener::Listener;
use support::{Library, Protocol, Reply, Server, Setup, info_lock};

#[track_caller]
fn server_with_caller() -> Server {
    let caller = Library::compile("tests/modules/caller.c");
    Setup::new().config(&format!("loadmodule {}", caller.path().display())).start()
}

/// With some flags the calls run as the user of the client, and may block. To Valkey 9.1 the client of the call then looks like a
/// connected one.
#[test]
fn call_by_module_has_no_session_and_no_message() {
    let server = server_with_caller();
    let mut client = server.client();
    let _listener = Listener::start(&server, "news");
    assert_eq!(client.run("LOCK.ACQUIRE gate holder"), 1);
    for flags in ["!E", "E", "EC", "EK", "ECK"] {
        if client.run(&format!("CALLER.CALL {flags} PING")).is_error() {
            continue; // Redis 7.0 has no flag K.
        }
        for request in [
            "LOCK.ACQUIRE door alice PX 60000 SESSION",
            "LOCK.REENTER gate alice PX 60000 BLOCK 0 SESSION NOTIFY news",
            "LOCK.ACQUIRE gate alice PX 60000 BLOCK 0 NOTIFY news",
        ] {
            let line = format!("CALLER.CALL {flags} {request}");
            assert_eq!(client.run(&line).code(), "ERR", "{line}");
            client.send_together(&["MULTI", &line, "EXEC"]);
            let replies = [(); 3].map(|()| client.receive());
            let error = replies[2].items()[0].error();
            assert!(error.ends_with("is not allowed in scripts or in calls by other modules"), "{line}: {error}");
        }
        assert_eq!(client.run(&format!("CALLER.CALL {flags} LOCK.ACQUIRE door alice PX 60000")), 1);
        assert_eq!(client.run(&format!("CALLER.CALL {flags} LOCK.RELEASE door alice")), 0);
    }
    assert_eq!([info_lock(&mut client, "sessions"), info_lock(&mut client, "waiters")], [0, 0]);
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 60000 SESSION"), 1, "the client itself begins one");
}

/// The reply of the other module has begun when the command is called. The messages come before the reply or after it.
#[test]
fn message_is_not_put_inside_reply_of_calling_module() {
    let server = server_with_caller();
    for (token, reply, event) in [("alice", Reply::Int(0), "granted "), ("bob", Reply::Nil, "withdrawn 0")] {
        let (mut alice, mut client) = (server.client(), server.client_speaking(Protocol::Resp3));
        client.send(&["SSUBSCRIBE", "news"]);
        assert!(matches!(client.receive(), Reply::Push(_)));
        for key in ["door0", "door1", "door2"] {
            assert_eq!(alice.run(&format!("LOCK.ACQUIRE {key} alice PX 600000")), 1);
            let asked = client.run(&format!("LOCK.ACQUIRE {key} bob PX 60000 BLOCK 0 NOTIFY news"));
            assert_eq!(asked, Reply::waiting());
        }
        client
            .send_together(&["0", "1", "2"].map(|number| format!("CALLER.PAIR !E LOCK.RELEASE door{number} {token}")));
        let (messages, replies): (Vec<_>, Vec<_>) =
            (0..6).map(|_| client.receive()).partition(|received| matches!(received, Reply::Push(_)));
        let pair = Reply::list([Reply::Status("first".to_owned()), reply]);
        assert!(replies.len() == 3 && replies.iter().all(|received| *received == pair), "{replies:?}");
        for message in messages {
            let Reply::Push(parts) = message else { unreachable!("they are pushed") };
            let text = parts[2].string();
            assert!(text.starts_with(event) && text.contains(" 0 bob door"), "{text}");
        }
        alice.ok("FLUSHALL");
    }
}
