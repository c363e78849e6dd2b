//! What a restart keeps of the locks, with snapshots alone and when the log is switched on: docs/install.md.

use std::fs;

use support::process::Process;
use support::{Client, Server, Setup, eventually, repository};

/// The line that the page adds to the file.
const LOG: &str = "appendonly yes";

/// Returns the section of docs/install.md about the log.
fn section() -> String {
    let page = fs::read_to_string(repository().join("docs/install.md")).expect("the page");
    let (_, section) = page.split_once("### Switch on the log").expect("a section about the log");
    section.split("\n#").next().expect("its text").to_owned()
}

/// Returns the commands that the section shows, and the fields of INFO that it waits for.
fn steps(section: &str) -> (Vec<&str>, Vec<(&str, &str)>) {
    let commands = section.lines().filter_map(|line| line.strip_prefix("admin> ")).collect();
    let spans = section.split('`').skip(1).step_by(2);
    (commands, spans.filter_map(|span| span.split_once(':')).collect())
}

/// Returns a server without a log that was started with data from an RDB file, and with more data since.
fn with_snapshot() -> Server {
    let mut server = Server::start();
    server.client().ok("SET data 1");
    server.shut_down("SAVE");
    let server = Setup::new().in_directory_of(&server).start();
    let mut client = server.client();
    assert_eq!(client.run("GET data"), "1");
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    server
}

#[track_caller]
fn has_all(server: &Server) {
    let mut client = server.client();
    assert_eq!(client.run("GET data"), "1");
    assert_eq!(client.run("LOCK.INFO door").get("owner"), "alice");
}

/// The reason for the section.
#[test]
fn log_in_file_alone_empties_server_and_snapshot() {
    let mut server = with_snapshot();
    server.shut_down("SAVE");
    let mut server = Setup::new().config(LOG).in_directory_of(&server).start();
    assert_eq!(server.client().run("DBSIZE"), 0);
    // As the default settings of the server do.
    server.shut_down("SAVE");
    assert_eq!(Setup::new().in_directory_of(&server).start().client().run("DBSIZE"), 0);
}

#[test]
fn log_as_documented_and_way_back_keep_data() {
    let mut server = with_snapshot();
    let section = section();
    let (commands, fields) = steps(&section);
    assert_eq!(fields.len(), 3, "{fields:?}");
    let mut client = server.client();
    commands.iter().for_each(|command| client.ok(command));
    let is_done = |client: &mut Client| {
        fields.iter().all(|(name, value)| client.info("persistence", name).as_deref() == Some(*value))
    };
    eventually("the log is complete", || is_done(&mut client));
    Process::kill(&mut server);
    let mut server = Setup::new().config(LOG).in_directory_of(&server).start();
    has_all(&server);

    server.client().ok("SET later 1");
    let back = section.split('`').find(|span| span.starts_with("SHUTDOWN")).expect("the way back");
    server.shut_down(back.trim_start_matches("SHUTDOWN"));
    let server = Setup::new().in_directory_of(&server).start();
    has_all(&server);
    assert_eq!(server.client().run("GET later"), "1");
}

#[test]
fn crash_without_log_goes_back_to_last_snapshot() {
    let mut server = with_snapshot();
    let mut client = server.client();
    client.ok("SAVE");
    assert_eq!(client.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(client.run("LOCK.ACQUIRE gate bob PX 600000"), 1);
    Process::kill(&mut server);
    let mut server = Setup::new().in_directory_of(&server).start();
    has_all(&server);
    assert_eq!(server.client().run("LOCK.INFO gate").get("state"), "free");

    // An orderly end is a snapshot.
    assert_eq!(server.client().run("LOCK.ACQUIRE gate bob PX 600000"), 1);
    server.shut_down("SAVE");
    let server = Setup::new().in_directory_of(&server).start();
    assert_eq!(server.client().run("LOCK.INFO gate").get("owner"), "bob");
}
