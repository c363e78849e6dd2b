//! One operation on a lock, as a request and its reply say it.

use std::time::{Duration, Instant};

use support::Reply;

/// An operation with its outcome. The table of the history describes the fields.
pub struct Operation<'l> {
    pub operation: &'static str,
    pub lock: &'l str,
    pub token: &'l str,
    pub kind: Option<&'static str>,
    pub limit: Option<u64>,
    pub hold: Option<u64>,
    pub session: bool,
    pub outcome: &'static str,
    pub reply: Option<String>,
    pub fence: Option<i64>,
    lease_ms: Option<u64>,
}

impl<'l> Operation<'l> {
    /// Returns the operation that a request asks for, with an unknown outcome; `None` if it is no operation on a lock.
    pub fn of(line: &'l str) -> Option<Self> {
        let mut words = line.split(' ');
        let (operation, kind) = match words.next()? {
            "LOCK.ACQUIRE" => ("acquire", Some("mutex")),
            "LOCK.REENTER" => ("acquire", Some("reentrant")),
            "LOCK.SHARE" => ("acquire", Some("share")),
            "LOCK.EXTEND" => ("extend", None),
            "LOCK.RELEASE" => ("release", None),
            "LOCK.FENCE" => ("fence", None),
            _ => return None,
        };
        let (lock, token) = (words.next()?, words.next()?);
        let options: Vec<&str> = words.collect();
        let number = |name| options.windows(2).find(|pair| pair[0] == name)?[1].parse().ok();
        let (limit, hold, lease_ms) = (number("LIMIT"), number("HOLD"), number("PX"));
        let session = options.contains(&"SESSION");
        Some(Self {
            operation,
            lock,
            token,
            kind,
            limit,
            hold,
            session,
            outcome: "unknown",
            reply: None,
            fence: None,
            lease_ms,
        })
    }

    /// Takes in the reply. The reply to a client that was unblocked can hide a grant.
    pub fn complete(&mut self, reply: Option<&Reply>, is_unblocked: bool) {
        self.outcome = match reply {
            None | Some(Reply::Closed) => "unknown",
            Some(Reply::Int(_)) if self.operation == "release" => "released",
            Some(Reply::Int(_)) => "granted",
            Some(reply) if *reply == Reply::waiting() => "waiting",
            Some(_) if self.operation == "acquire" && is_unblocked => "unknown",
            Some(_) => "refused",
        };
        self.reply = reply.map(ToString::to_string);
        self.fence = match reply {
            Some(Reply::Int(number)) if self.operation == "fence" => Some(*number),
            _ => None,
        };
    }

    /// Returns the earliest end of the lease that a grant of a request from this time has.
    pub fn lease_end(&self, sent: Instant) -> Option<Instant> {
        self.lease_ms.filter(|_| self.outcome == "granted").map(|ms| sent + Duration::from_millis(ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed<'l>(request: &'l str, reply: Option<&Reply>) -> Operation<'l> {
        let mut operation = Operation::of(request).expect("an operation");
        operation.complete(reply, false);
        operation
    }

    #[test]
    fn operation_has_the_options_of_the_request() {
        let share = completed("LOCK.SHARE s1 t5 PX 20 LIMIT 3 SESSION BLOCK 50", Some(&Reply::Int(1)));
        assert_eq!((share.operation, share.kind, share.lock, share.token), ("acquire", Some("share"), "s1", "t5"));
        assert_eq!((share.limit, share.hold, share.session, share.outcome), (Some(3), None, true, "granted"));
        let now = Instant::now();
        assert_eq!(share.lease_end(now), Some(now + Duration::from_millis(20)));
    }

    #[test]
    fn outcome_follows_from_the_reply() {
        let acquire = |reply: Option<&Reply>| completed("LOCK.ACQUIRE s1 t5", reply).outcome;
        assert_eq!((acquire(None), acquire(Some(&Reply::Closed))), ("unknown", "unknown"));
        assert_eq!((acquire(Some(&Reply::Nil)), acquire(Some(&Reply::waiting()))), ("refused", "waiting"));
        assert_eq!(completed("LOCK.RELEASE s1 t5", Some(&Reply::Int(0))).outcome, "released");
        assert_eq!(completed("LOCK.FENCE s1 t5 c", Some(&Reply::Int(7))).fence, Some(7));
        assert!(Operation::of("LOCK.INFO s1").is_none() && Operation::of("PING").is_none());
        let mut operation = completed("LOCK.ACQUIRE s1 t5", None);
        operation.complete(Some(&Reply::Nil), true);
        assert_eq!(operation.outcome, "unknown", "the reply to an unblocked client");
    }
}
