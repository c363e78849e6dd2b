//! A set of replicas under Sentinel whose user `default` is off, with the users of docs/security.md.

use std::fs;

use support::replicas::{REPLICATION, in_time};
use support::sentinel::Sentinel;
use support::{Client, Protocol, Server, Setup, repository};

/// Returns the line of the configuration for a user of the page.
#[track_caller]
fn user(name: &str) -> String {
    let page = fs::read_to_string(repository().join("docs/security.md")).expect("the page");
    let command = format!("admin> ACL SETUSER {name} ");
    let rules = page.lines().find_map(|line| line.strip_prefix(&command)).expect("a user of the page");
    format!("user {name} {rules}")
}

fn start(more: &str) -> Server {
    let users = [user("replica"), user("sentinel"), "user test on nopass ~* &* +@all".to_owned()];
    let config = format!("{}\nmasteruser replica\nmasterauth secret\n{more}", users.join("\n"));
    Setup::new().config(REPLICATION).config(&config).start()
}

fn client(server: &Server) -> Option<Client> {
    let mut client = Client::connect(server.port(), Protocol::Resp2)?;
    (!client.run("AUTH test any").is_error()).then_some(client)
}

#[test]
fn users_of_page_are_enough_for_failover() {
    let master = start("");
    let replica = start(&format!("replicaof 127.0.0.1 {}", master.port()));
    for server in [&master, &replica] {
        // The support of the tests starts servers with this user.
        server.client().ok("ACL SETUSER default off");
    }
    let _sentinels = Sentinel::start_three_at(master.port(), 1, |_, name| {
        format!("sentinel auth-user {name} sentinel\nsentinel auth-pass {name} secret")
    });
    drop(master);
    in_time("the replica is promoted", || {
        client(&replica).is_some_and(|mut client| client.run("LOCK.ACQUIRE door alice PX 60000") == 1)
    });
}
