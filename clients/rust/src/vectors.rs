//! The cases of clients/vectors/words.json, which all packages share.

use std::time::Duration;

use serde_json::Value as Json;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::core::{Core, LATELY, MAX_BLOCK, RETRY};
use crate::error::Fault;
use crate::events::{Events, read_message};
use crate::keeper::Notice;
use crate::lock::{DEFAULT_LEASE, MAX_PERMITS};
use crate::observe::label_of;
use crate::redis::Client;
use crate::request::{FOREVER, Form, GRACE, MIN_LEASE, MIN_SESSION, Request, channel_prefix, counter_of};
use crate::server::{SILENCE, Server, Words};
use crate::{Error, Lock, Locks};

fn each(part: &str, check: impl Fn(&Json)) {
    let cases: Json = serde_json::from_str(include_str!("../../vectors/words.json")).expect("JSON");
    for case in cases[part].as_array().expect("cases") {
        println!("{case}");
        check(case);
    }
}

fn text(json: &Json) -> &str {
    json.as_str().expect("text")
}

fn ms(json: &Json) -> Option<Duration> {
    let millis = json.as_f64()?;
    // What this type cannot say needs no check.
    Duration::try_from_secs_f64(millis / 1000.0).ok()
}

fn number(json: &Json) -> Option<u32> {
    json.as_u64().and_then(|number| number.try_into().ok())
}

/// Options may have any order.
fn sorted(mut words: Vec<String>) -> Vec<String> {
    words[3..].sort();
    words
}

fn words(words: &Words) -> Vec<String> {
    words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

async fn server(notices: UnboundedSender<Notice>) -> Server {
    let client = Client::open("redis://127.0.0.1").expect("an address");
    Server::new(client.into(), Events::new(notices)).await.expect("nothing is connected")
}

#[test]
fn commands_are_those_of_the_family() {
    each("commands", |case| {
        let lock = &case["lock"];
        let form = match text(&lock["kind"]) {
            "reentrant" => Form::Reentrant(String::new()),
            "shared" => Form::Share(number(&lock["permits"])),
            _ => Form::Mutex,
        };
        let (lease, has_session) = (ms(&lock["lease_ms"]).expect("a lease"), lock["session"] == true);
        let max_waiters = number(&lock["max_waiters"]);
        let request = Request { key: b"door".to_vec(), form, lease, has_session, is_renewed: false, max_waiters };
        let wait = ms(&case["wait_ms"]).zip(case["channel"].as_str().map(str::as_bytes));
        let command = match text(&case["send"]) {
            "acquire" | "wait" => request.acquire("t:1", lease, wait),
            "release" => request.release("t:1"),
            "extend" => request.extend("t:1", ms(&case["lease_ms"]).expect("a lease")),
            _ => request.fence("t:1", false).expect("a counter"),
        };
        let expected = case["words"].as_array().expect("words").iter().map(|word| text(word).to_owned()).collect();
        assert_eq!(sorted(words(&command.words)), sorted(expected));
    });
}

#[tokio::test]
async fn channels_are_those_of_the_family() {
    let server = server(unbounded_channel().0).await;
    each("channels", |case| {
        let found = if case["cluster"] == true {
            channel_prefix(text(&case["name"]).as_bytes())
        } else {
            // The number of the connection is a part of what the package chooses.
            server.prefix(b"door").map(|prefix| prefix.strip_suffix(b"0:").expect("a number").to_vec())
        };
        let expected = case["channel"].as_str().map(|channel| channel.strip_suffix("ID").expect("an end").as_bytes());
        assert_eq!(found.as_deref(), expected);
    });
}

#[test]
fn counters_are_those_of_the_family() {
    each("counters", |case| {
        let found = counter_of(text(&case["name"]).as_bytes(), case["cluster"] == true);
        assert_eq!(found.as_deref(), case["counter"].as_str().map(str::as_bytes));
    });
}

#[tokio::test]
async fn arguments_are_those_of_the_family() {
    let (keeper, notices) = unbounded_channel();
    let locks = Locks { core: Core::new(server(keeper).await, notices) };
    each("arguments", |case| {
        let json = &case["lock"];
        let is_said = |name: &str, can: bool| json.get(name).is_none() || can;
        let types = [("lease_ms", ms(&json["lease_ms"]).is_some()), ("wait_ms", ms(&json["wait_ms"]).is_some())];
        let counts = ["permits", "max_waiters"].map(|name| (name, number(&json[name]).is_some()));
        if !types.iter().chain(&counts).all(|(name, can)| is_said(name, *can)) {
            return;
        }
        let mut lock: Lock = locks.lock(text(&json["name"])).lease(ms(&json["lease_ms"]).expect("a lease"));
        lock = ms(&json["wait_ms"]).into_iter().fold(lock, Lock::wait);
        lock = number(&json["permits"]).into_iter().fold(lock, Lock::permits);
        lock = number(&json["max_waiters"]).into_iter().fold(lock, Lock::max_waiters);
        lock = json["label"].as_str().into_iter().fold(lock, Lock::label);
        lock = if json["session"] == true { lock.session() } else { lock };
        lock = if json["renew"] == true { lock.renew() } else { lock };
        assert_eq!(lock.check().is_ok(), case["valid"] == true);
        assert!(matches!(lock.check(), Ok(()) | Err(Error::Argument(..))));
    });
}

#[test]
fn errors_are_those_of_the_family() {
    each("errors", |case| {
        let class = match Error::new("door", Fault::Server(text(&case["text"]).to_owned())) {
            Error::QueueFull(_) => "full",
            error if error.is_unknown_command() => "no module",
            error if error.is_no_channel() => "no channel",
            error if error.may_pass() => "passing",
            error if matches!(error.clone().for_holder(), Error::Lost(_)) => "lost",
            _ => "server",
        };
        assert_eq!(class, case["class"]);
    });
}

#[test]
fn messages_are_those_of_the_family() {
    each("messages", |case| {
        let (event, token) = (text(&case["event"]).as_bytes(), text(&case["token"]).as_bytes());
        assert_eq!(read_message(text(&case["text"]).as_bytes()), (event, token));
    });
}

#[test]
fn labels_are_those_of_the_family() {
    each("labels", |case| assert_eq!(label_of(text(&case["token"])), case["label"]));
}

#[test]
fn numbers_are_those_of_the_family() {
    let cases: Json = serde_json::from_str(include_str!("../../vectors/words.json")).expect("JSON");
    for (name, time) in [
        ("default_lease_ms", DEFAULT_LEASE),
        ("min_lease_ms", MIN_LEASE),
        ("max_lease_ms", FOREVER),
        ("min_session_lease_ms", MIN_SESSION),
        ("max_grace_ms", GRACE),
        ("max_block_ms", MAX_BLOCK),
        ("silence_ms", SILENCE),
        ("outage_ms", crate::acquire::MAX_OUTAGE),
        ("scripts_ms", LATELY),
        ("max_poll_ms", RETRY),
        ("release_again_ms", crate::release::AFTERMATH),
    ] {
        assert_eq!(ms(&cases["numbers"][name]), Some(time), "{name}");
    }
    for (name, expected) in
        [("max_permits", MAX_PERMITS), ("late_part", crate::acquire::LATE_PART), ("renewals", crate::keeper::RENEWALS)]
    {
        assert_eq!(number(&cases["numbers"][name]), Some(expected), "{name}");
    }
}
