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

    /// Sends a line at this time on a connection, and has its reply 1 ms later.
    fn run(&mut self, at_ms: u64, connection: i64, line: &str, reply: Reply) -> Ruling {
        let (operation, sent) = (Operation::of(line).expect("an operation"), self.start + Duration::from_millis(at_ms));
        let kind = if let Action::Acquire(kind) = operation.action { kind } else { Kind::Mutex };
        let record = self.record.get_or_insert_with(|| Record::new(&operation, kind, self.start, 0));
        record.sent(&operation, sent);
        let (operation, reply, received) = (&operation, &reply, sent + Duration::from_millis(1));
        let (is_unblocked, is_direct) = (false, true);
        let exchange = Exchange { operation, line, reply, sent, received, connection, is_unblocked, is_direct };
        let (finding, ruling, _) = record.judge(&self.evidence, &exchange);
        finding.map_or(ruling, |(rule, _)| Ruling::Broken(rule))
    }

    /// A message at 50 ms that the lock was granted.
    fn message(&mut self, end_ms: i64) -> Finding {
        let received = self.start + Duration::from_millis(50);
        self.record.as_mut().expect("a request").message(&self.evidence, received, 50, end_ms)
    }

    /// A mutex that was granted at 0 for 100 ms.
    fn granted() -> Self {
        let mut bench = Self::new();
        assert_eq!(bench.run(0, 1, ACQUIRE, Reply::Int(1)), Ruling::Allowed);
        bench
    }

    /// When the hold ended that a request at this time confirms, in milliseconds.
    fn held_until(&self, at_ms: u64) -> Option<u128> {
        let record = self.record.as_ref().expect("a request");
        let token = Token::read(b"t1").expect("a token");
        let hold = record.hold(token, &self.evidence, Some(self.start + Duration::from_millis(at_ms)))?;
        Some((hold.until - self.start).as_millis())
    }
}

/// The ruling about a reply to a line that is sent then, after a grant.
fn after(at_ms: u64, line: &str, reply: Reply) -> Ruling {
    Bench::granted().run(at_ms, 1, line, reply)
}

const ACQUIRE: &str = "LOCK.ACQUIRE s t1 PX 100";
const RELEASE: &str = "LOCK.RELEASE s t1";
const EXTEND: &str = "LOCK.EXTEND s t1 PX 100";

#[test]
fn hold_lasts_to_the_request_that_confirms_it() {
    assert_eq!(Bench::granted().held_until(500), Some(500), "its only request was granted");
    let mut bench = Bench::granted();
    bench.run(50, 1, ACQUIRE, Reply::Int(1));
    assert_eq!([40, 500].map(|at| bench.held_until(at)), [Some(40), Some(149)], "only the lease counts");
    bench.run(80, 1, EXTEND, error("TRYAGAIN"));
    assert_eq!(bench.held_until(500), Some(80), "nothing is certain after a change");
    bench.run(90, 1, EXTEND, Reply::Int(100));
    assert_eq!(bench.held_until(500), Some(189));
    bench.run(95, 1, RELEASE, error("LOADING"));
    assert_eq!(bench.held_until(500), Some(95));
}

#[test]
fn holder_keeps_lock_until_lease_ends() {
    assert_eq!(after(90, RELEASE, error("NOTOWNER")), Ruling::Broken(KEPT));
    assert_eq!(after(50, "LOCK.FENCE s t1 f", error("NOTHELD")), Ruling::Broken(KEPT));
    assert_eq!(after(110, RELEASE, error("NOTOWNER")), Ruling::NotHeld);
    let mut bench = Bench::granted();
    bench.run(10, 1, RELEASE, error("LOADING"));
    assert_eq!(bench.run(50, 1, RELEASE, error("NOTHELD")), Ruling::NotHeld, "the first can have released it");
}

#[test]
fn reply_outside_the_contract_is_wrong() {
    assert_eq!(after(110, RELEASE, Reply::Int(0)), Ruling::Held);
    assert_eq!(after(50, RELEASE, Reply::Int(1)), Ruling::Broken(EXPECTED));
    assert_eq!(after(50, EXTEND, Reply::Nil), Ruling::Broken(EXPECTED));
    assert_eq!(Bench::new().run(0, 1, ACQUIRE, Reply::Nil), Ruling::Allowed);
    assert_eq!(Bench::new().run(0, 1, ACQUIRE, error("ERR")), Ruling::Broken(EXPECTED));
    assert!(matches!(Bench::new().run(0, 1, ACQUIRE, error("LEASELIMIT")), Ruling::Broken(_)));
    let second = "LOCK.REENTER s t1 PX 100 HOLD 2";
    assert_eq!(after(1, second, Reply::Int(3)), Ruling::Broken(EXPECTED));
}

#[test]
fn repeated_request_is_granted_again() {
    assert_eq!(after(50, ACQUIRE, Reply::Int(1)), Ruling::Allowed);
    assert_eq!(after(50, ACQUIRE, Reply::Nil), Ruling::Broken(SAME));
    assert_eq!(after(110, ACQUIRE, Reply::Nil), Ruling::Allowed);
    let share = "LOCK.SHARE s t1 PX 100";
    assert_eq!(after(50, share, error("OTHERFORM")), Ruling::Held);
    assert_eq!(after(50, share, Reply::Int(1)), Ruling::Broken(SAME));
}

#[test]
fn session_keeps_lock_while_its_connection_is_open() {
    let session = |connection, flushes: bool| {
        let mut bench = Bench::new();
        bench.run(0, 1, "LOCK.ACQUIRE s t1 PX 100 SESSION", Reply::Int(1));
        if flushes {
            bench.evidence.flushes.mark(());
        }
        bench.run(5000, connection, RELEASE, error("NOTHELD"))
    };
    assert_eq!(session(1, false), Ruling::Broken(SESSION));
    assert_eq!([session(2, false), session(1, true)], [Ruling::NotHeld, Ruling::NotHeld]);
}

#[test]
fn message_shows_grant_and_lease() {
    let waiting = || {
        let mut bench = Bench::new();
        bench.run(0, 1, "LOCK.ACQUIRE s t1 PX 100 BLOCK 900 NOTIFY c", Reply::waiting());
        bench
    };
    let message = |end| waiting().message(end).is_none();
    assert!(message(140) && message(150) && !message(153) && !message(-3));
    let mut bench = waiting();
    bench.message(140);
    assert_eq!(bench.run(51, 2, ACQUIRE, Reply::Nil), Ruling::Broken(SAME));
}
