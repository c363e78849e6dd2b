//! How `INFO keysizes` of Redis 8 counts locks. DEBUG RELOAD has the server count all keys again.

use support::{Client, Server, Waiter};

/// More bytes than the server stores in the header of an object, which are written by another function.
const LONG: &str = "a-token-that-is-longer-than-what-fits-into-a-header";

/// The counts of the section, or nothing where the server has none.
fn sizes(client: &mut Client) -> Vec<String> {
    let text = client.run("INFO keysizes").string();
    text.lines().filter(|line| line.starts_with("db")).map(str::to_owned).collect()
}

/// What the section shows now, and what it shows when the keys have been counted again.
#[track_caller]
fn shown_and_right(client: &mut Client) -> [Vec<String>; 2] {
    let shown = sizes(client);
    client.ok("DEBUG RELOAD");
    [shown, sizes(client)]
}

#[track_caller]
fn has_sizes(server: &Server) -> bool {
    let mut client = server.client();
    client.ok("SET probe x");
    let has = !sizes(&mut client).is_empty();
    if !has {
        eprintln!("skipped: this server counts no sizes of keys");
    }
    has
}

#[test]
fn mutex_and_counter_are_counted_right() {
    let server = Server::start();
    if !has_sizes(&server) {
        return;
    }
    let mut client = server.client();
    for token in ["a", LONG] {
        let key = format!("lock-{}", token.len());
        assert_eq!(client.run(&format!("LOCK.ACQUIRE {key} holder PX 600000")), 1);
        let mut next = Waiter::start(&server, &format!("LOCK.ACQUIRE {key} {token} PX 600000 BLOCK 0"));
        assert_eq!(client.run(&format!("LOCK.RELEASE {key} holder")), 0);
        assert_eq!(next.reply(), 1);
        for _ in 0..2 {
            assert!(client.run(&format!("LOCK.FENCE {key} {token} counter")).int() > 0);
        }
        assert_eq!(client.run("LOCK.ACQUIRE released holder"), 1);
        assert_eq!(client.run("LOCK.RELEASE released holder"), 0);
    }
    let [shown, right] = shown_and_right(&mut client);
    assert_eq!(shown, right);
}

#[test]
fn holds_and_shares_count_right_except_on_redis_8_0() {
    let server = Server::start();
    if !has_sizes(&server) {
        return;
    }
    let mut client = server.client();
    for line in [
        "LOCK.REENTER hash holder PX 600000",
        "LOCK.REENTER hash holder",
        "LOCK.SHARE set a PX 600000",
        "LOCK.SHARE set b PX 600000",
        "LOCK.SHARE set c PX 600000",
        "LOCK.RELEASE set c",
        "LOCK.REENTER released holder",
        "LOCK.RELEASE released holder",
    ] {
        assert!(!client.run(line).is_error(), "{line}");
    }
    let [shown, right] = shown_and_right(&mut client);
    // There the functions that write to a Hash and to a Sorted Set for a module do not count.
    assert_eq!(shown == right, !server.flavour().is("redis 8.0"), "{shown:?}, and right is {right:?}");
}
