//! Planted replies that the rules forbid, each among replies that they allow.

use super::*;
use crate::evidence::Spans;

struct Bench {
    evidence: Evidence,
    start: Instant,
    record: Option<Record>,
}

fn error(code: &str) -> Reply {
    Reply::Error(format!("{code} with a reason"))
}

impl Bench {
    fn new() -> Self {
        let evidence = Evidence { longest_lease_ms: Spans::beginning_with(0), ..Evidence::default() };
        Self { evidence, start: Instant::now(), record: None }
    }

    /// Sends a line at this time on a connection, and has its reply 1 ms later; `None` if the connection is closed.
    fn run(&mut self, at_ms: u64, connection: i64, line: &str, reply: impl Into<Option<Reply>>) -> Ruling {
        self.send(line, connection);
        let (operation, sent) = (Operation::of(line).expect("an operation"), self.start + Duration::from_millis(at_ms));
        let record = self.record.as_mut().expect("a request");
        let Some(reply) = reply.into() else {
            record.lost(&operation);
            return Ruling::Allowed;
        };
        let (operation, reply, received) = (&operation, &reply, sent + Duration::from_millis(1));
        let (is_unblocked, is_direct) = (false, true);
        let exchange = Exchange { operation, line, reply, sent, received, connection, is_unblocked, is_direct };
        let (finding, ruling) = record.judge(&self.evidence, &exchange);
        if ruling == Ruling::Held {
            record.held(&self.evidence, &exchange);
        }
        finding.map_or(ruling, |(rule, _)| Ruling::Broken(rule))
    }

    fn send(&mut self, line: &str, connection: i64) {
        let operation = Operation::of(line).expect("an operation");
        let kind = if let Action::Acquire(kind) = operation.action { kind } else { Kind::Mutex };
        let record = self.record.get_or_insert_with(|| Record::new(&operation, kind, self.start, 0));
        record.sent(&operation, connection);
    }

    /// A message at 50 ms that the lock was granted.
    fn message(&mut self, lease_end_ms: i64) -> Finding {
        let received = self.start + Duration::from_millis(50);
        let message = Message { server: 1, received, received_ms: 50, lease_end_ms };
        self.record.as_mut().expect("a request").message(&self.evidence, &message)
    }

    /// A mutex that was granted at 0 for 100 ms.
    fn granted() -> Self {
        let mut bench = Self::new();
        assert_eq!(bench.run(0, 1, ACQUIRE, Reply::Int(1)), Ruling::Allowed);
        bench
    }
}

/// The ruling about a reply to a line that is sent then, after a grant.
fn after(at_ms: u64, line: &str, reply: Reply) -> Ruling {
    Bench::granted().run(at_ms, 1, line, reply)
}

const NOTIFIED: &str = "LOCK.ACQUIRE s t1 PX 100 BLOCK 900 NOTIFY c";
const ACQUIRE: &str = "LOCK.ACQUIRE s t1 PX 100";
const RELEASE: &str = "LOCK.RELEASE s t1";
const EXTEND: &str = "LOCK.EXTEND s t1 PX 100";

#[test]
fn holder_keeps_lock_until_lease_ends() {
    assert_eq!(after(90, RELEASE, error("NOTOWNER")), Ruling::Broken(KEPT));
    assert_eq!(after(110, RELEASE, error("NOTOWNER")), Ruling::Over);
    assert_eq!(after(110, RELEASE, Reply::Int(0)), Ruling::Held);
    assert_eq!(after(50, RELEASE, Reply::Int(1)), Ruling::Broken(EXPECTED));
    assert_eq!(after(110, RELEASE, Reply::Nil), Ruling::Broken(EXPECTED));
    assert_eq!(after(50, "LOCK.FENCE s t1 f", error("NOTHELD")), Ruling::Broken(KEPT));
    let mut bench = Bench::granted();
    assert_eq!(bench.run(90, 1, EXTEND, Reply::Int(100)), Ruling::Held);
    assert_eq!(bench.run(180, 1, RELEASE, error("NOTHELD")), Ruling::Broken(KEPT), "the lease was extended");
}

#[test]
fn nothing_is_certain_after_lost_release() {
    let mut bench = Bench::granted();
    bench.run(1, 1, RELEASE, None);
    assert_eq!(bench.run(50, 2, RELEASE, error("NOTHELD")), Ruling::Over);
    let mut bench = Bench::granted();
    bench.send(RELEASE, 1);
    assert_eq!(bench.run(50, 2, EXTEND, error("NOTHELD")), Ruling::Over, "a release is under way");
    let mut bench = Bench::new();
    bench.run(1, 1, ACQUIRE, None);
    assert_eq!(bench.run(50, 2, RELEASE, Reply::Int(0)), Ruling::Held, "the lost request was granted");
}

#[test]
fn refused_client_does_not_hold() {
    let mut bench = Bench::new();
    assert_eq!(bench.run(0, 1, ACQUIRE, Reply::Nil), Ruling::Allowed);
    assert_eq!(bench.run(1, 1, RELEASE, Reply::Int(0)), Ruling::Broken(NIL_IS_NIL));
    assert_eq!(Bench::new().run(0, 1, ACQUIRE, error("ERR")), Ruling::Broken(EXPECTED));
    assert!(matches!(Bench::new().run(0, 1, ACQUIRE, error("LEASELIMIT")), Ruling::Broken(_)));
}

#[test]
fn repeated_request_is_granted_again() {
    assert_eq!(after(50, ACQUIRE, Reply::Int(1)), Ruling::Allowed);
    assert_eq!(after(50, ACQUIRE, Reply::Nil), Ruling::Broken(SAME));
    assert_eq!(after(110, ACQUIRE, Reply::Nil), Ruling::Allowed);
    let share = "LOCK.SHARE s t1 PX 100";
    assert_eq!(after(50, share, error("OTHERFORM")), Ruling::Held);
    assert_eq!(after(50, share, Reply::Int(1)), Ruling::Broken(FORMS));
    assert_eq!(after(50, share, Reply::Nil), Ruling::Broken(FORMS));
    let [first, second] = [1, 2].map(|hold| format!("LOCK.REENTER s t1 PX 100 HOLD {hold}"));
    let mut bench = Bench::new();
    assert_eq!(bench.run(0, 1, &first, Reply::Int(1)), Ruling::Allowed);
    assert_eq!(bench.run(1, 1, &second, Reply::Int(3)), Ruling::Broken(EXPECTED));
    assert_eq!(bench.run(2, 1, &second, error("NOTHELD")), Ruling::Broken(KEPT));
}

#[test]
fn session_keeps_lock_while_its_connection_is_open() {
    let session = |connection, flushes: bool| {
        let mut bench = Bench::new();
        bench.run(0, 1, "LOCK.ACQUIRE s t1 PX 100 SESSION", Reply::Int(1));
        if flushes {
            bench.evidence.flushes.mark(true);
        }
        bench.run(5000, connection, RELEASE, error("NOTHELD"))
    };
    assert_eq!(session(1, false), Ruling::Broken(SESSION));
    assert_eq!([session(2, false), session(1, true)], [Ruling::Over, Ruling::Over]);
}

#[test]
fn flushed_lock_is_not_held() {
    let mut bench = Bench::new();
    bench.start = Instant::now() - Duration::from_millis(50);
    bench.run(0, 1, ACQUIRE, Reply::Int(1));
    bench.evidence.flushes.mark(true);
    assert_eq!(bench.run(60, 1, RELEASE, Reply::Int(0)), Ruling::Broken(FLUSHED));
}

#[test]
fn message_shows_grant_and_lease() {
    let message = |end| {
        let mut bench = Bench::new();
        bench.run(0, 1, NOTIFIED, Reply::waiting());
        (bench.message(end).is_none(), bench.run(90, 1, RELEASE, error("NOTHELD")))
    };
    assert_eq!(message(140), (true, Ruling::Broken(KEPT)));
    assert!(message(100).0 && message(150).0);
    assert!(!message(97).0, "it began before the request");
    assert!(!message(153).0, "it has not begun");
    let mut bench = Bench::new();
    bench.run(0, 1, NOTIFIED, Reply::waiting());
    bench.message(140);
    assert_eq!(bench.run(49, 2, ACQUIRE, Reply::Nil), Ruling::Allowed, "it was under way at the grant");
    assert_eq!(bench.run(51, 2, ACQUIRE, Reply::Nil), Ruling::Broken(SAME));
}
