//! Requests that are sent twice, because a client lost its connection or its patience: wherever the connection is cut
//! and in whichever order the two copies arrive, in the end it is as if one had been sent.

use support::parallel::for_each;
use support::proxy::Link;
use support::raw::encode;
use support::{Client, Reply, Server, Waiter, eventually, field, waiters_of};

/// A request, and what went before it.
struct Case {
    before: &'static [&'static str],
    request: &'static str,
    answer: i64,
    /// What a copy may be told that comes second.
    second: &'static str,
}

const HOLD_1: &str = "LOCK.REENTER door alice HOLD 1 PX 600000";
const HOLD_2: &str = "LOCK.REENTER door alice HOLD 2";
const HOLD_3: &str = "LOCK.REENTER door alice HOLD 3";

const CASES: [Case; 6] = [
    Case { before: &[], request: "LOCK.ACQUIRE door alice PX 600000", answer: 1, second: "1" },
    Case { before: &[], request: HOLD_1, answer: 1, second: "1" },
    Case { before: &[HOLD_1, HOLD_2], request: HOLD_3, answer: 3, second: "3" },
    Case { before: &[HOLD_1, HOLD_2, HOLD_3], request: "LOCK.RELEASE door alice HOLD 3", answer: 2, second: "2" },
    Case { before: &[HOLD_1], request: "LOCK.RELEASE door alice HOLD 1", answer: 0, second: "NOTHELD" },
    Case {
        before: &["LOCK.ACQUIRE door alice PX 600000"],
        request: "LOCK.RELEASE door alice",
        answer: 0,
        second: "NOTHELD",
    },
];

/// Everything that a later request could notice.
#[track_caller]
fn state(client: &mut Client) -> Vec<Reply> {
    let info = client.run("LOCK.INFO door");
    let mut state = ["state", "owner", "holds", "waiters"].map(|name| info.get(name)).to_vec();
    state.push(Reply::Int(client.pttl("door").clamp(-2, 0)));
    state
}

/// One server on which a case is played again and again.
struct Stage<'c> {
    server: Server,
    control: Client,
    case: &'c Case,
    expected: Vec<Reply>,
}

impl<'c> Stage<'c> {
    #[track_caller]
    fn new(case: &'c Case) -> Self {
        let server = Server::start();
        let control = server.client();
        let mut stage = Self { server, control, case, expected: Vec::new() };
        let _link = stage.begin();
        assert_eq!(stage.control.run(case.request), case.answer);
        stage.expected = state(&mut stage.control);
        stage
    }

    /// The state before the request, and a connection on which it was sent and is held back.
    #[track_caller]
    fn begin(&mut self) -> Link {
        self.control.ok("FLUSHALL");
        for line in self.case.before {
            assert!(self.control.run(line).int() > 0, "{line}");
        }
        let mut link = Link::open(self.server.port());
        link.client.send(self.case.request);
        link
    }

    /// Sends the request again on a connection that works.
    #[track_caller]
    fn again(&mut self) {
        let reply = self.control.run(self.case.request);
        let second = match &reply {
            Reply::Error(_) => reply.code().to_owned(),
            _ => reply.int().to_string(),
        };
        let answers = [self.case.answer.to_string(), self.case.second.to_owned()];
        assert!(answers.contains(&second), "{}: {reply:?}", self.case.request);
    }

    /// The first connection is gone, and with it everything that it could bring about.
    #[track_caller]
    fn ends_as_if_sent_once(&mut self, link: Link, what: &str) {
        link.cut();
        drop(link);
        eventually("the first connection is gone", || {
            self.control.info("clients", "connected_clients").as_deref() == Some("1")
        });
        assert_eq!(state(&mut self.control), self.expected, "{}: {what}", self.case.request);
    }
}

#[test]
fn cut_while_the_request_is_under_way() {
    for_each(&CASES, |case| {
        let mut stage = Stage::new(case);
        for bytes in 0..=encode(case.request).len() {
            let link = stage.begin();
            link.requests.allow(bytes);
            link.requests.wait_until_passed(bytes);
            link.cut();
            stage.again();
            stage.ends_as_if_sent_once(link, &format!("cut after {bytes} bytes"));
        }
    });
}

#[test]
fn cut_after_it_was_executed_and_before_the_reply() {
    for_each(&CASES, |case| {
        let mut stage = Stage::new(case);
        let reply = format!(":{}\r\n", case.answer).len();
        for bytes in 0..=reply {
            let link = stage.begin();
            link.requests.open();
            link.replies.allow(bytes);
            link.replies.wait_until_arrived(reply);
            link.replies.wait_until_passed(bytes);
            assert_eq!(state(&mut stage.control), stage.expected, "the first copy has done it all");
            link.cut();
            stage.again();
            stage.ends_as_if_sent_once(link, &format!("{bytes} bytes of the reply came"));
        }
    });
}

#[test]
fn the_first_copy_arrives_after_the_second_was_answered() {
    for_each(&CASES, |case| {
        let mut stage = Stage::new(case);
        for bytes in 0..encode(case.request).len() {
            let mut link = stage.begin();
            link.requests.allow(bytes);
            link.requests.wait_until_passed(bytes);
            stage.again();
            assert_eq!(state(&mut stage.control), stage.expected, "the second copy has done it all");
            link.requests.open();
            link.replies.open();
            let late = link.client.line().expect("an answer");
            assert!(late.trim_start_matches([':', '-']).starts_with(case.second), "{}: {late}", case.request);
            stage.ends_as_if_sent_once(link, &format!("{bytes} bytes came in time"));
        }
    });
}

#[test]
fn a_late_copy_of_an_earlier_hold_does_no_harm() {
    let server = Server::start();
    let mut alice = server.client();
    let mut late = [HOLD_1, "LOCK.RELEASE door alice HOLD 1"].map(|request| {
        let mut link = Link::open(server.port());
        link.client.send(request);
        link
    });
    for line in [HOLD_1, HOLD_2, HOLD_3] {
        assert!(alice.run(line).int() > 0);
    }
    for link in &mut late {
        link.requests.open();
        link.replies.open();
        let answer = link.client.line().expect("an answer");
        assert!(answer.starts_with("-HOLDMISMATCH"), "{answer}");
        assert_eq!(field(&mut alice, "door", "holds"), 3);
    }
}

#[test]
fn a_late_release_leaves_the_next_holder_alone() {
    for (take, release) in
        [("LOCK.ACQUIRE door alice", "LOCK.RELEASE door alice"), (HOLD_1, "LOCK.RELEASE door alice HOLD 1")]
    {
        let server = Server::start();
        let mut control = server.client();
        assert_eq!(control.run(take), 1);
        let mut bob = Waiter::start(&server, "LOCK.REENTER door bob BLOCK 0");
        let mut link = Link::open(server.port());
        link.client.send(release);
        assert_eq!(control.run(release), 0);
        assert_eq!(bob.reply(), 1);
        link.requests.open();
        link.replies.open();
        assert!(link.client.line().expect("an answer").starts_with("-NOTOWNER"));
        assert_eq!(field(&mut control, "door", "owner"), "bob");
        assert_eq!(field(&mut control, "door", "holds"), 1);
    }
}

/// What `alice` sends to wait in line.
const WAITS: [&str; 2] = ["LOCK.ACQUIRE door alice PX 600000 BLOCK 0", "LOCK.REENTER door alice HOLD 1 BLOCK 0"];

/// A server where `holder` has the mutex `door`, and a connection on which `alice`'s request is held back.
#[track_caller]
fn held_back(request: &str) -> (Server, Client, Link) {
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.ACQUIRE door holder"), 1);
    let mut link = Link::open(server.port());
    link.client.send(request);
    (server, control, link)
}

#[track_caller]
fn comes_into_line(control: &mut Client, link: &Link) {
    let before = waiters_of(control, "door");
    link.requests.open();
    eventually("the copy waits", || waiters_of(control, "door") == before + 1);
}

/// `alice` is served before `bob`, once; then `bob`.
#[track_caller]
fn alice_is_served_once_before_bob(control: &mut Client, alice: &mut Waiter, bob: &mut Waiter) {
    assert_eq!(control.run("LOCK.RELEASE door holder"), 0);
    assert_eq!(alice.reply(), 1);
    assert_eq!(field(control, "door", "owner"), "alice");
    assert_eq!(field(control, "door", "holds"), 1);
    assert!(bob.is_blocked());
    assert_eq!(waiters_of(control, "door"), 1, "no copy of the request still waits");
    assert_eq!(control.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(bob.reply(), 1);
}

#[test]
fn cut_while_waiting() {
    for request in WAITS {
        for notices_first in [true, false] {
            let (server, mut control, link) = held_back(request);
            comes_into_line(&mut control, &link);
            let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
            link.cut();
            if notices_first {
                eventually("the place is away", || waiters_of(&mut control, "door") == 1);
            }
            let mut again = Waiter::start(&server, request);
            eventually("the first copy is gone", || waiters_of(&mut control, "door") == 2);
            alice_is_served_once_before_bob(&mut control, &mut again, &mut bob);
        }
    }
}

#[test]
fn both_copies_wait_in_either_order_and_one_grant_answers_both() {
    for request in WAITS {
        for late in [false, true] {
            let (server, mut control, mut link) = held_back(request);
            if !late {
                comes_into_line(&mut control, &link);
            }
            let mut again = Waiter::start(&server, request);
            let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
            if late {
                comes_into_line(&mut control, &link);
            }
            link.replies.open();
            alice_is_served_once_before_bob(&mut control, &mut again, &mut bob);
            assert_eq!(link.client.line().as_deref(), Some(":1"), "both were told");
        }
    }
}

#[test]
fn the_copy_that_waited_first_is_cut_while_the_second_waits() {
    for request in WAITS {
        let (server, mut control, link) = held_back(request);
        comes_into_line(&mut control, &link);
        let mut again = Waiter::start(&server, request);
        let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        // Not waiting for the server to see it: the grant may meet a connection that is gone.
        link.cut();
        assert_eq!(control.run("LOCK.RELEASE door holder"), 0);
        assert_eq!(again.reply(), 1);
        assert_eq!(field(&mut control, "door", "holds"), 1);
        assert!(bob.is_blocked());
        eventually("the first copy is gone", || waiters_of(&mut control, "door") == 1);
        assert_eq!(field(&mut control, "door", "owner"), "alice", "not taken back");
        assert_eq!(control.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(bob.reply(), 1);
    }
}

#[test]
fn a_copy_that_waits_arrives_after_the_grant() {
    for request in WAITS {
        let (server, mut control, mut link) = held_back(request);
        let mut again = Waiter::start(&server, request);
        assert_eq!(control.run("LOCK.RELEASE door holder"), 0);
        assert_eq!(again.reply(), 1);
        link.requests.open();
        link.replies.open();
        assert_eq!(link.client.line().as_deref(), Some(":1"));
        assert_eq!(field(&mut control, "door", "holds"), 1);
        assert_eq!(control.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(control.run("EXISTS door"), 0);
    }
}

#[test]
fn cut_after_the_grant_and_before_its_answer() {
    for request in WAITS {
        for bytes in 0..=":1\r\n".len() {
            let (server, mut control, link) = held_back(request);
            comes_into_line(&mut control, &link);
            let bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
            assert_eq!(control.run("LOCK.RELEASE door holder"), 0);
            link.replies.allow(bytes);
            link.replies.wait_until_arrived(":1\r\n".len());
            link.cut();
            let mut again = server.client();
            assert_eq!(again.run(request), 1, "the retry finds its lock");
            assert_eq!(field(&mut control, "door", "holds"), 1);
            assert!(bob.is_blocked());
        }
    }
}

/// The connection is cut and the lock released at the same time: whichever the server sees first, both waiters are
/// served, each once, and nothing is left over.
#[test]
fn cut_at_the_very_moment_of_the_grant() {
    for request in WAITS {
        let server = Server::start();
        let mut control = server.client();
        for round in 0..30 {
            assert_eq!(control.run("LOCK.ACQUIRE door holder"), 1);
            let mut link = Link::open(server.port());
            link.client.send(request);
            comes_into_line(&mut control, &link);
            let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
            if round % 2 == 0 {
                link.cut();
                control.send(&["LOCK.RELEASE", "door", "holder"]);
            } else {
                control.send(&["LOCK.RELEASE", "door", "holder"]);
                link.cut();
            }
            assert_eq!(control.receive(), 0);
            let mut again = Waiter::send(&server, request);
            let first = field(&mut control, "door", "owner").string();
            let served = if first == "alice" { &mut again } else { &mut bob };
            assert_eq!(served.reply(), 1, "round {round}: {first}");
            assert_eq!(control.run(&format!("LOCK.RELEASE door {first}")), 0);
            let (second, served) = if first == "alice" { ("bob", &mut bob) } else { ("alice", &mut again) };
            assert_eq!(served.reply(), 1, "round {round}: {second}");
            assert_eq!(field(&mut control, "door", "holds"), 1);
            assert_eq!(control.run(&format!("LOCK.RELEASE door {second}")), 0);
            eventually("the lock is free", || control.run("EXISTS door") == 0);
            eventually("nobody waits", || waiters_of(&mut control, "door") == 0);
        }
    }
}
