//! The programs in `examples`, as processes of their own.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use support::{Server, Setup, eventually};

use crate::waiters;

/// An example that runs. It is killed if the test fails.
struct Example {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Example {
    fn start(name: &str, arguments: &[&str]) -> Self {
        // cargo builds them next to the folder of the tests.
        let tests = env::current_exe().expect("the path of the tests");
        let folder = tests.parent().and_then(|deps| deps.parent()).expect("the folder of what was built");
        let program = folder.join("examples").join(name);
        let mut process = Command::new(program).args(arguments).stdout(Stdio::piped()).spawn().expect("an example");
        let lines = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { process, lines }
    }

    /// Reads its output up to a line that begins with `words`, and returns the rest of the line.
    fn says(&mut self, words: &str) -> String {
        let mut rests = self.lines.by_ref().lines().map_while(Result::ok);
        let rest = rests.find_map(|line| line.strip_prefix(words).map(str::to_owned));
        rest.unwrap_or_else(|| panic!("the example ended before it said {words:?}"))
    }

    /// Returns the fencing token that it prints next.
    fn leads(&mut self) -> u64 {
        self.says("does the job, with fencing token ").parse().expect("a number")
    }

    fn interrupt(&mut self) -> ExitStatus {
        support::process::interrupt(self.process.id());
        self.process.wait().expect("a process that ends")
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn url(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

/// Sends a request to the web service, and returns the response.
fn deposit(port: u16) -> String {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).expect("a web service");
    let request = b"POST /accounts/17/deposit HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    connection.write_all(request).expect("a web service that reads");
    let mut response = String::new();
    connection.read_to_string(&mut response).expect("a response");
    response
}

#[test]
fn worker_pool_lets_three_work_at_a_time() {
    let server = Setup::new().start();
    let mut pool = Example::start("worker_pool", &[&url(&server)]);
    let mut began_at: Vec<u64> = Vec::new();
    for line in pool.lines.by_ref().lines() {
        let line = line.expect("text");
        let number = line.split_once(" ms: ").expect("milliseconds").0;
        began_at.push(number.trim().parse().expect("a number"));
    }
    assert!(pool.process.wait().is_ok_and(|status| status.success()));
    assert_eq!(began_at.len(), 12);
    began_at.sort_unstable();
    // Each works for 200 ms, and three others work before it starts.
    assert!(began_at.windows(4).all(|four| four[3] - four[0] >= 199), "{began_at:?}");
}

#[test]
fn cron_leader_is_followed_when_it_resigns_or_ends() {
    let server = Setup::new().start();
    let mut first = Example::start("cron_leader", &["web-1", &url(&server)]);
    let mut tokens = vec![first.leads()];
    let mut second = Example::start("cron_leader", &["web-2", &url(&server)]);
    second.says("the leader is web-1");
    eventually("it waits", || waiters(&server, "leader") == 1);
    assert!(first.interrupt().success());
    tokens.push(second.leads());
    let mut third = Example::start("cron_leader", &["web-3", &url(&server)]);
    eventually("it waits", || waiters(&server, "leader") == 1);
    second.process.kill().expect("a process");
    tokens.push(third.leads());
    assert!(tokens.is_sorted(), "{tokens:?}");
    assert!(third.interrupt().success());
}

#[test]
fn axum_service_holds_a_lock_for_each_account() {
    let server = Setup::new().start();
    let port = support::free_port();
    let mut service = Example::start("axum_service", &[&url(&server), &port.to_string()]);
    eventually("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let response = deposit(port);
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    assert!(response.contains("account 17 was changed with token "), "{response}");
    server.ask("LOCK.ACQUIRE account:17 other PX 60000");
    let response = deposit(port);
    assert!(response.starts_with("HTTP/1.1 429 "), "{response}");
    assert!(service.interrupt().success());
}

#[cfg(feature = "redis-1")]
#[test]
fn own_pool_counts_under_a_lock() {
    let server = Setup::new().start();
    for number in 1..=2 {
        let mut pool = Example::start("own_pool", &[&url(&server)]);
        assert_eq!(pool.says("the count is "), number.to_string());
        assert!(pool.process.wait().is_ok_and(|status| status.success()));
    }
    assert_eq!(server.ask("EXISTS counter"), support::Reply::Int(0));
}
