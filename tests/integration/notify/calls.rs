//! Calls by another module, whose client has no connection that could close or receive a message.

use support::listener::Listener;
use support::{Library, Protocol, Reply, Server, Setup, info_lock};

#[track_caller]
fn server_with_caller() -> Server {
    let caller = Library::compile("tests/modules/caller.c");
    Setup::new().config(&format!("loadmodule {}", caller.path().display())).start()
}

#[test]
fn call_by_module_has_no_connection() {
    let server = server_with_caller();
    let mut client = server.client();
    for take in ["LOCK.ACQUIRE", "LOCK.REENTER"] {
        let reply = client.run(&format!("CALLER.CALL {take} door alice PX 60000 SESSION"));
        assert_eq!(reply.error(), "ERR a session is not allowed in scripts and calls by other modules");
        assert_eq!(client.run(&format!("CALLER.CALL {take} door alice PX 60000")), 1, "a call without a session");
        assert_eq!(client.run("CALLER.CALL LOCK.RELEASE door alice"), 0);
        client.ok("MULTI");
        client.run(&format!("CALLER.CALL {take} door alice PX 60000 SESSION"));
        client.run(&format!("CALLER.CALL {take} door alice PX 60000 BLOCK 0 NOTIFY news"));
        for (reply, what) in client.run("EXEC").items().iter().zip(["a session", "NOTIFY"]) {
            assert_eq!(reply.error(), format!("ERR {what} is not allowed in scripts and calls by other modules"));
        }
    }
    assert_eq!(info_lock(&mut client, "sessions"), 0);
}

/// The calls run as the user of the client, and may block. To Valkey 9.1 the stand-in then looks like a client.
#[test]
fn call_by_module_with_flags_has_no_connection() {
    let server = server_with_caller();
    let mut client = server.client();
    let _listener = Listener::start(&server, "news");
    assert_eq!(client.run("LOCK.ACQUIRE gate holder"), 1);
    for flags in ["E", "EC", "EK", "ECK"] {
        for request in [
            "LOCK.ACQUIRE door alice PX 60000 SESSION",
            "LOCK.REENTER gate alice PX 60000 BLOCK 0 SESSION NOTIFY news",
            "LOCK.ACQUIRE gate alice PX 60000 BLOCK 0 NOTIFY news",
        ] {
            let line = format!("CALLER.AS {flags} {request}");
            assert_eq!(client.run(&line).code(), "ERR", "{line}");
            client.send_together(&["MULTI", &line, "EXEC"]);
            let replies = [(); 3].map(|()| client.receive());
            assert_eq!(replies[2].items()[0].code(), "ERR", "{line} in MULTI");
        }
    }
    assert_eq!(info_lock(&mut client, "sessions"), 0);
    assert_eq!(info_lock(&mut client, "waiters"), 0);
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 60000 SESSION"), 1, "the client itself begins one");
}

/// The reply of the other module has begun when the command is called. The messages come before the reply or behind it.
#[test]
fn message_is_not_put_inside_reply_of_calling_module() {
    let server = server_with_caller();
    for (token, answer, event) in [("alice", Reply::Int(0), "granted "), ("bob", Reply::Nil, "withdrawn 0")] {
        let (mut alice, mut client) = (server.client(), server.client_speaking(Protocol::Resp3));
        client.send(&["SSUBSCRIBE", "news"]);
        assert!(matches!(client.receive(), Reply::Push(_)));
        for key in ["door0", "door1", "door2"] {
            assert_eq!(alice.run(&format!("LOCK.ACQUIRE {key} alice PX 600000")), 1);
            let asked = client.run(&format!("LOCK.ACQUIRE {key} bob PX 60000 BLOCK 0 NOTIFY news"));
            assert_eq!(asked, Reply::waiting());
        }
        client.send_together(&["0", "1", "2"].map(|number| format!("CALLER.PAIR LOCK.RELEASE door{number} {token}")));
        let mut messages = Vec::new();
        let mut replies = 0;
        while replies < 3 || messages.len() < 3 {
            match client.receive() {
                Reply::Push(parts) => messages.push(parts[2].string()),
                reply => {
                    assert_eq!(reply.items(), [Reply::Status("first".to_owned()), answer.clone()]);
                    replies += 1;
                }
            }
        }
        assert_eq!(client.run("PING"), "PONG");
        messages.sort_by_key(|text| text.rsplit(' ').next().map(str::to_owned));
        for (number, text) in messages.iter().enumerate() {
            assert!(text.starts_with(event) && text.ends_with(&format!(" 0 bob door{number}")), "{text}");
        }
        alice.ok("FLUSHALL");
    }
}
