//! Planted errors: a history of each kind that must not pass, and its neighbour that must.

use crate::history::{Draw, LockHistory, parse, windows};
use crate::verdict::{Verdict, judge, rise};

/// Lines of a history: `invoked completed token operation` with further fields as JSON.
fn history(lines: &[&str]) -> LockHistory {
    let line = |line: &&str| {
        let mut words = line.splitn(5, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (invoked, completed, token, operation, fields) = (word(), word(), word(), word(), word());
        let (outcome, reply) = if operation == "release" { ("released", "0") } else { ("granted", "1") };
        let fields = if fields.is_empty() { r#""kind":"mutex","lease_ms":10"# } else { fields };
        let known = |name: &str, value: &str| {
            if fields.contains(name) { String::new() } else { format!(r#","{name}":{value}"#) }
        };
        format!(
            r#"{{"round":0,"invoked":{invoked},"completed":{completed},"server":1,"connection":1,"database":0,
            "external":false,"operation":"{operation}","lock":"l","token":"{token}"{}{}{},{fields}}}"#,
            known("session", "false"),
            known("outcome", &format!("\"{outcome}\"")),
            known("reply", &format!("\"{reply}\"")),
        )
        .replace('\n', "")
    };
    let text: Vec<String> = lines.iter().map(line).collect();
    parse(&text.join("\n")).expect("a history").pop().expect("a lock")
}

fn verdict(lines: &[&str]) -> Verdict {
    let history = history(lines);
    let verdicts: Vec<Verdict> = windows(&history).iter().map(|window| judge(window, history.forgets)).collect();
    verdicts.into_iter().find(|verdict| *verdict != Verdict::Linearizable).unwrap_or(Verdict::Linearizable)
}

fn holds(lines: &[&str]) {
    assert_eq!(verdict(lines), Verdict::Linearizable);
}

fn fails(lines: &[&str]) {
    assert_eq!(verdict(lines), Verdict::NotLinearizable);
}

const SHARE: &str = r#""kind":"share","lease_ms":10,"limit":2"#;
const OWNER: &str = r#""kind":"reentrant","lease_ms":10"#;
const NOT_HELD: &str = r#""outcome":"refused","reply":"-NOTHELD The lock is not held""#;

#[test]
fn second_grant_in_lease_is_found() {
    holds(&["0 1 a acquire", "10000 10001 b acquire"]);
    fails(&["0 1 a acquire", "8000 8998 b acquire"]);
    holds(&["0 1 a acquire", "2 3 a release", "4 5 b acquire"]);
    holds(&["0 1 a acquire", "5000 5010 a release", "5001 5009 b acquire"]);
    fails(&["0 1 a acquire", "5000 5010 a release", "4000 4999 b acquire"]);
}

#[test]
fn holder_that_proves_its_hold_has_kept_the_lock() {
    let fence = r#""fence":7"#;
    holds(&["0 1 a acquire", "20000 20001 b acquire", "30000 30001 c acquire"]);
    fails(&["0 1 a acquire", "20000 20001 b acquire", &format!("25000 25001 a fence {fence}")]);
    fails(&["0 1 a acquire", &format!("5000 5001 a extend {NOT_HELD}")]);
    holds(&["0 1 a acquire", &format!("9999 10001 a extend {NOT_HELD}")]);
}

#[test]
fn grant_after_wait_can_lie_anywhere_in_it() {
    holds(&["0 1 a acquire", "0 9000 b acquire", "4000 5000 a release", "6000 6001 b release"]);
    fails(&["0 1 a acquire", "0 3000 b acquire", "4000 5000 a release"]);
}

#[test]
fn request_without_a_reply_explains_a_later_hold() {
    let lost = r#""kind":"mutex","lease_ms":10,"outcome":"unknown""#;
    holds(&[&format!("0 null a acquire {lost}"), "5000 5001 a release"]);
    fails(&["5000 5001 a release"]);
    fails(&[&format!("6000 null a acquire {lost}"), "5000 5001 a release"]);
}

#[test]
fn share_above_limit_is_found() {
    let share = |times: &str| format!("{times} acquire {SHARE}");
    holds(&[&share("0 1 a"), &share("2 3 b"), &share("10000 10001 c")]);
    fails(&[&share("0 1 a"), &share("2 3 b"), &share("4 5 c")]);
    fails(&[&share("0 1 a"), "2 3 b acquire"]);
}

#[test]
fn wrong_number_of_holds_is_found() {
    let take = |times: &str, holds: u8| format!(r#"{times} acquire {OWNER},"reply":"{holds}""#);
    holds(&[&take("0 1 a", 1), &take("2 3 a", 2), r#"4 5 a release "reply":"1""#, "6 7 a release"]);
    fails(&[&take("0 1 a", 1), &take("2 3 a", 3)]);
    fails(&[&take("0 1 a", 1), &take("2 3 a", 2), "4 5 a release"]);
    fails(&[&take("0 1 a", 1), r#"4 5 a release "reply":"1""#]);
}

#[test]
fn fencing_token_that_falls_is_found() {
    let draw = |invoked, completed, fence| Draw { invoked, completed, fence };
    assert!(rise(&[draw(0, 1, 5), draw(2, 5, 9), draw(3, 4, 8), draw(6, 7, 10)]));
    assert!(!rise(&[draw(0, 1, 5), draw(2, 5, 9), draw(6, 7, 8)]));
    assert!(!rise(&[draw(0, 1, 5), draw(2, 3, 5)]));
}

#[test]
fn session_gets_its_lock_back() {
    let times = |refused: &str, session: bool| {
        let acquire = format!(r#"0 1 a acquire "kind":"mutex","lease_ms":10,"session":{session}"#);
        [acquire, format!("{refused} a extend {NOT_HELD}"), "20000 20001 a release".to_owned()]
    };
    let of = |refused: &str, session: bool| verdict(&times(refused, session).each_ref().map(String::as_str));
    assert_eq!(of("11000 15000", true), Verdict::Linearizable);
    assert_eq!(of("8000 15000", false), Verdict::NotLinearizable);
    assert_eq!(of("5000 8000", true), Verdict::NotLinearizable);
}

/// Returns the verdict about a second grant, 5 ms after the first, in a history with these other lines.
fn second_grant(session: bool, others: &[String]) -> Verdict {
    second_grant_of(&format!(r#""lease_ms":10,"session":{session}"#), others)
}

fn second_grant_of(fields: &str, others: &[String]) -> Verdict {
    let grant = |at: u64, token: &str| {
        format!(
            r#"{{"round":0,"invoked":{at},"completed":{at},"server":1,"connection":1,"database":0,"external":false,"operation":"acquire","lock":"l","token":"{token}","kind":"mutex",{fields},"outcome":"granted","reply":"1"}}"#
        )
    };
    let text = [others, &[grant(1000, "a"), grant(6000, "b")]].concat().join("\n");
    let history = parse(&text).expect("a history").pop().expect("a lock");
    let [window] = &windows(&history)[..] else { return Verdict::Linearizable };
    judge(window, false)
}

#[test]
fn flush_ends_holds() {
    let flush = |at: u64| vec![format!(r#"{{"round":0,"at":{at},"fault":"FLUSHALL"}}"#)];
    assert_eq!(second_grant(false, &flush(3000)), Verdict::Linearizable);
    assert_eq!(second_grant(false, &flush(7000)), Verdict::NotLinearizable);
}

#[test]
fn session_ends_whenever_its_connection_is_reset() {
    let closed = |at: u64| format!(r#"{{"round":0,"since":{at},"at":{at},"server":1,"closed":1}}"#);
    assert_eq!(second_grant(true, &[closed(3000), closed(9000)]), Verdict::Linearizable);
    assert_eq!(second_grant(true, &[closed(500), closed(9000)]), Verdict::NotLinearizable);
    assert_eq!(second_grant(false, &[closed(3000)]), Verdict::NotLinearizable);
}

#[test]
fn request_without_lease_gets_limit() {
    let limit = |ms: u64| format!(r#"{{"round":0,"at":0,"fault":"CONFIG SET lock.max-lease-ms {ms}"}}"#);
    let grants = |ms| second_grant_of(r#""lease_ms":null,"session":false"#, &[limit(ms)]);
    assert_eq!(grants(4), Verdict::Linearizable);
    assert_eq!(grants(0), Verdict::NotLinearizable);
}
