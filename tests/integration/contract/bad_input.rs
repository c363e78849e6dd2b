//! Bad input: a clear error each time, in the server's own words, and nothing changed.

use support::{Client, Reply, Server};

const SYNTAX: &str = "ERR syntax error";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const TIMEOUT_NOT_AN_INTEGER: &str = "ERR timeout is not an integer or out of range";
const TIMEOUT_NEGATIVE: &str = "ERR timeout is negative";
const TIMEOUT_TOO_LARGE: &str = "ERR timeout is out of range";
const NOT_POSITIVE: &str = "ERR value is out of range, must be positive";
const WRONGTYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// The commands that name a token, with the least that each needs besides it.
const WITH_TOKEN: [(&str, &str); 4] =
    [("LOCK.ACQUIRE", ""), ("LOCK.REENTER", ""), ("LOCK.RELEASE", ""), ("LOCK.EXTEND", "PX 1000")];

/// What the server does not read as an integer.
const NO_INTEGERS: [&[u8]; 22] = [
    b"abc",
    b"",
    b"1.5",
    b"+1",
    b" 1",
    b"1 ",
    b"01",
    b"-01",
    b"-0",
    b"00",
    b"0x10",
    b"1e3",
    b"--1",
    b"-",
    b"1_000",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"18446744073709551616",
    b"99999999999999999999999999",
    b"\xff\xfe",
    b"1\0",
    b"\xef\xbc\x91",
];

fn expire_error(command: &str) -> String {
    format!("ERR invalid expire time in '{}' command", command.to_lowercase())
}

fn arity_error(command: &str) -> String {
    format!("ERR wrong number of arguments for '{}' command", command.to_lowercase())
}

type Args = Vec<Vec<u8>>;

fn words(line: &str) -> Args {
    line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

fn with(line: &str, last: &[u8]) -> Args {
    let mut args = words(line);
    args.push(last.to_vec());
    args
}

/// A server with one client and the keys on which everything is tried.
struct Bench {
    client: Client,
    _server: Server,
}

impl Bench {
    /// `free` does not exist, `mutex` and `reentrant` are held by `alice`, `other` by somebody else.
    fn start() -> Self {
        let server = Server::start();
        let mut client = server.client();
        assert_eq!(client.run("LOCK.ACQUIRE mutex alice PX 900000"), 1);
        assert_eq!(client.run("LOCK.REENTER reentrant alice PX 900000"), 1);
        assert_eq!(client.run("LOCK.ACQUIRE other somebody PX 900000"), 1);
        client.run("RPUSH list x");
        client.run("SADD set x");
        client.run("ZADD zset 1 x");
        client.run("XADD stream 1-1 x y");
        Self { client, _server: server }
    }

    /// Everything that a refused command must leave alone.
    fn snapshot(&mut self) -> Vec<Reply> {
        let mut all = vec![self.client.run("DBSIZE")];
        for key in ["mutex", "reentrant", "other", "list", "set", "zset", "stream"] {
            all.push(self.client.run(&format!("DUMP {key}")));
            all.push(self.client.run(&format!("PEXPIRETIME {key}")));
        }
        for key in ["free", "mutex", "reentrant", "other"] {
            all.push(self.client.run(&format!("LOCK.INFO {key}")).get("waiters"));
        }
        all
    }

    /// The command answers an error that `fits` and that repeats nothing of what was sent; nothing changes.
    #[track_caller]
    fn refuses_when(&mut self, args: &[Vec<u8>], expected: &str, fits: impl Fn(&str) -> bool) {
        let shown: Vec<String> = args.iter().map(|a| a.escape_ascii().to_string()).collect();
        let shown = shown.join(" ");
        let before = self.snapshot();
        let reply = self.client.call(args);
        let Reply::Error(error) = &reply else {
            panic!("{shown}: {reply:?} in place of {expected}");
        };
        assert!(fits(error), "{shown}: {error} in place of {expected}");
        for arg in args.iter().skip(1).filter(|arg| arg.len() > 3) {
            let echoed = error.contains(&*String::from_utf8_lossy(arg));
            assert!(!echoed, "{shown}: the error repeats it: {error}");
        }
        assert_eq!(self.snapshot(), before, "{shown} changed something");
    }

    #[track_caller]
    fn refuses(&mut self, args: &[Vec<u8>], error: &str) {
        self.refuses_when(args, error, |line| line == error);
    }

    /// The options are refused whoever holds the lock: they are read before the key.
    #[track_caller]
    fn refuses_options(&mut self, command: &str, options: &[Vec<u8>], error: &str) {
        for key in ["free", "mutex", "reentrant", "other", "list"] {
            let mut args = words(&format!("{command} {key} alice"));
            args.extend_from_slice(options);
            self.refuses(&args, error);
        }
    }
}

#[test]
fn the_wrong_number_of_arguments() {
    let mut bench = Bench::start();
    for line in [
        "LOCK.ACQUIRE",
        "LOCK.ACQUIRE mutex",
        "LOCK.REENTER",
        "LOCK.REENTER mutex",
        "LOCK.RELEASE",
        "LOCK.RELEASE mutex",
        "LOCK.EXTEND",
        "LOCK.EXTEND mutex",
        "LOCK.EXTEND mutex alice",
        "LOCK.EXTEND mutex alice PX",
        "LOCK.INFO",
        "LOCK.INFO mutex alice",
        "LOCK.WAITERS",
    ] {
        let args = words(line);
        let command = line.split(' ').next().unwrap_or_default();
        bench.refuses(&args, &arity_error(command));
    }
}

#[test]
fn options_that_the_command_does_not_have() {
    let mut bench = Bench::start();
    for (command, foreign) in [
        ("LOCK.ACQUIRE", ["XX", "ADD", "KEEPTTL", "HOLD 1", "FOO"]),
        ("LOCK.REENTER", ["NX", "ADD", "PXAT 9", "COUNT 1", "FOO"]),
        ("LOCK.RELEASE", ["NX", "ADD", "BLOCK 1", "PX 9 SESSION", "FOO"]),
        ("LOCK.EXTEND", ["PX 1 NX", "PX 1 XX", "PX 1 BLOCK 1", "PX 1 SESSION", "FOO 1"]),
    ] {
        for options in foreign {
            bench.refuses_options(command, &words(options), SYNTAX);
        }
    }
}

#[test]
fn more_words_than_any_command_takes() {
    let mut bench = Bench::start();
    for (command, needed) in WITH_TOKEN {
        for (count, word) in [(17, "FOO"), (400, "PX"), (400, "1"), (20_000, "NX")] {
            let mut options = words(needed);
            options.extend(words(&format!("{word} ").repeat(count)));
            bench.refuses_when(&[words(&format!("{command} mutex alice")), options].concat(), "ERR", |error| {
                error.starts_with("ERR ")
            });
        }
    }
}

#[test]
fn a_session_without_a_lease() {
    let mut bench = Bench::start();
    for (command, options) in [("LOCK.ACQUIRE", "SESSION"), ("LOCK.REENTER", "SESSION"), ("LOCK.ACQUIRE", "NX SESSION")]
    {
        bench.refuses_options(command, &words(options), "ERR a session needs a lease, EX or PX");
    }
}

#[test]
fn options_given_twice_or_against_each_other() {
    let mut bench = Bench::start();
    let leases = ["PX 1000 PX 1000", "EX 1 EX 1", "PX 1000 px 2000", "PX 1000 EX 1", "EX 1 PX 1000"];
    for (command, _) in WITH_TOKEN {
        for options in leases {
            bench.refuses_options(command, &words(options), SYNTAX);
        }
    }
    for options in ["BLOCK 1 BLOCK 1", "BLOCK 1 PX 9 block 1"] {
        bench.refuses_options("LOCK.ACQUIRE", &words(options), SYNTAX);
        bench.refuses_options("LOCK.REENTER", &words(options), SYNTAX);
    }
    for options in ["NX NX", "NX PX 1000 nx", "NX BLOCK 1 NX"] {
        bench.refuses_options("LOCK.ACQUIRE", &words(options), SYNTAX);
    }
    for options in ["PX 1 ADD ADD", "ADD PX 1 add"] {
        bench.refuses_options("LOCK.EXTEND", &words(options), SYNTAX);
    }
    bench.refuses(&words("LOCK.WAITERS mutex COUNT 1 COUNT 1"), SYNTAX);
    bench.refuses(&words("LOCK.QUEUES COUNT 1 count 1"), SYNTAX);
}

#[test]
fn an_option_without_its_value() {
    let mut bench = Bench::start();
    for command in ["LOCK.ACQUIRE", "LOCK.REENTER"] {
        for options in ["PX", "EX", "BLOCK", "PX 1000 BLOCK", "BLOCK 1 EX"] {
            bench.refuses_options(command, &words(options), SYNTAX);
        }
    }
    bench.refuses_options("LOCK.ACQUIRE", &words("NX PX"), SYNTAX);
    bench.refuses_options("LOCK.RELEASE", &words("PX"), SYNTAX);
    bench.refuses_options("LOCK.RELEASE", &words("EX"), SYNTAX);
    bench.refuses_options("LOCK.EXTEND", &words("ADD PX"), SYNTAX);
    bench.refuses_options("LOCK.EXTEND", &words("ADD ADD"), SYNTAX);
    bench.refuses(&words("LOCK.WAITERS mutex COUNT"), SYNTAX);
    bench.refuses(&words("LOCK.WAITERS mutex 5"), SYNTAX);
    bench.refuses(&words("LOCK.QUEUES COUNT"), SYNTAX);
    bench.refuses(&words("LOCK.QUEUES 5"), SYNTAX);
    bench.refuses(&words("LOCK.QUEUES mutex COUNT 5"), SYNTAX);
}

#[test]
fn option_words_that_are_only_nearly_right() {
    let mut bench = Bench::start();
    for (command, needed) in WITH_TOKEN {
        for word in [b"P".as_slice(), b"PXX", b"", b" PX", b"PX ", b"PX\0", b"\0", b"\xff\xfe\xfd", b"P\xc5\xbf"] {
            let mut options = words(needed);
            options.push(word.to_vec());
            options.push(b"1000".to_vec());
            bench.refuses_options(command, &options, SYNTAX);
        }
    }
}

#[test]
fn leases_that_are_no_integers() {
    let mut bench = Bench::start();
    for (command, _) in WITH_TOKEN {
        for unit in ["PX", "EX"] {
            for value in NO_INTEGERS {
                bench.refuses_options(command, &with(unit, value), NOT_AN_INTEGER);
            }
        }
    }
}

#[test]
fn leases_that_are_zero_negative_or_beyond_the_clock() {
    let mut bench = Bench::start();
    for (command, _) in WITH_TOKEN {
        let error = expire_error(command);
        for options in [
            "PX 0",
            "PX -1",
            "PX -9223372036854775808",
            "PX 9223372036854775807",
            "EX 0",
            "EX -1",
            "EX -9223372036854775808",
            "EX 9223372036854775807",
            "EX 9223372036854775",
            "EX 9223372036854776",
        ] {
            bench.refuses_options(command, &words(options), &error);
        }
    }
}

#[test]
fn waits_that_are_no_time() {
    let mut bench = Bench::start();
    for command in ["LOCK.ACQUIRE", "LOCK.REENTER"] {
        for value in NO_INTEGERS {
            bench.refuses_options(command, &with("BLOCK", value), TIMEOUT_NOT_AN_INTEGER);
        }
        for value in ["BLOCK -1", "BLOCK -9223372036854775808"] {
            bench.refuses_options(command, &words(value), TIMEOUT_NEGATIVE);
        }
        bench.refuses_options(command, &words("BLOCK 9223372036854775807"), TIMEOUT_TOO_LARGE);
    }
}

#[test]
fn tokens_that_are_empty_or_too_long() {
    let mut bench = Bench::start();
    for (command, needed) in WITH_TOKEN {
        for token in [Vec::new(), vec![b'x'; 1025], vec![0; 70_000]] {
            for key in ["free", "mutex", "reentrant", "other", "list"] {
                let mut args = with(&format!("{command} {key}"), &token);
                args.extend(words(needed));
                bench.refuses_when(&args, "ERR ... 1 to 1024 bytes", |error| {
                    error.starts_with("ERR ") && error.contains("1 to 1024 bytes")
                });
            }
        }
    }
}

#[test]
fn keys_of_another_type() {
    let mut bench = Bench::start();
    for key in ["list", "set", "zset", "stream"] {
        for line in [
            "LOCK.ACQUIRE {} alice",
            "LOCK.ACQUIRE {} alice NX PX 1000",
            "LOCK.ACQUIRE {} alice BLOCK 0",
            "LOCK.REENTER {} alice",
            "LOCK.REENTER {} alice PX 1000 BLOCK 0",
            "LOCK.RELEASE {} alice",
            "LOCK.RELEASE {} alice PX 1000",
            "LOCK.EXTEND {} alice PX 1000",
            "LOCK.EXTEND {} alice EX 1 ADD",
            "LOCK.INFO {}",
            "LOCK.WAITERS {}",
        ] {
            bench.refuses(&words(&line.replace("{}", key)), WRONGTYPE);
        }
    }
}

#[test]
fn counts_of_waiters_that_are_none() {
    let mut bench = Bench::start();
    for command in ["LOCK.WAITERS mutex", "LOCK.QUEUES"] {
        for value in NO_INTEGERS {
            bench.refuses(&with(&format!("{command} COUNT"), value), NOT_AN_INTEGER);
        }
        for value in ["0", "-1", "-9223372036854775808"] {
            bench.refuses(&words(&format!("{command} COUNT {value}")), NOT_POSITIVE);
        }
    }
}

#[test]
fn more_locks_than_are_listed_at_once() {
    let mut bench = Bench::start();
    for value in ["1001", "9223372036854775807"] {
        let args = words(&format!("LOCK.QUEUES COUNT {value}"));
        bench.refuses(&args, "ERR value is out of range, must be at most 1000");
    }
    assert_eq!(bench.client.run("LOCK.QUEUES COUNT 1000"), Reply::List(vec![]));
}

#[test]
fn what_is_just_within_the_limits_is_taken() {
    let server = Server::start();
    let mut client = server.client();
    let token = vec![b'x'; 1024];
    assert_eq!(client.call(&[b"LOCK.ACQUIRE".as_slice(), b"door", &token]), 1);
    assert_eq!(client.call(&[b"LOCK.RELEASE".as_slice(), b"door", &token]), 0);
    assert_eq!(client.run("LOCK.ACQUIRE door a PX 1000"), 1);
    assert_eq!(client.run("LOCK.RELEASE door a"), 0);
    let most = i64::MAX / 2;
    assert_eq!(client.run(&format!("LOCK.ACQUIRE door a PX {most}")), 1);
    let left = support::remaining_ms(&mut client, "door");
    assert!((most - 60_000..=most).contains(&left), "{left}");
    assert_eq!(client.run("LOCK.WAITERS door COUNT 1"), Reply::List(vec![]));
    let count = i64::MAX;
    let none = client.run(&format!("LOCK.WAITERS door COUNT {count}"));
    assert_eq!(none, Reply::List(vec![]));
}
