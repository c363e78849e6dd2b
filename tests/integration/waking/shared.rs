//! What makes room in a shared lock serves those at the head of the line for whom there is room, and nobody else.

use support::{Client, Reply, Server, Way, eventually, field, info_lock, waiters_of};

/// A server where alice and bob share `door`, alice until 60 s and bob until 90 s from now.
fn shared() -> (Server, Client) {
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.SHARE door alice PX 60000"), 1);
    assert_eq!(control.run("LOCK.SHARE door bob PX 90000"), 1);
    (server, control)
}

#[track_caller]
fn clear(control: &mut Client) {
    control.ok("FLUSHALL");
    assert_eq!(control.run("LOCK.SHARE door alice PX 60000"), 1);
    assert_eq!(control.run("LOCK.SHARE door bob PX 90000"), 1);
}

/// After `line`, which removes the share of alice, who waits for one of two shares is served; who wants the lock alone
/// and comes next waits on, until the line removes the share of bob as well.
#[track_caller]
fn makes_room(line: impl Fn(&str) -> String) {
    let (server, mut control) = shared();
    for ways in Way::IN_LINE {
        let mut carol = ways[0].start(&server, "LOCK.SHARE door carol LIMIT 2 PX 600000 BLOCK 0");
        let mut dora = ways[1].start(&server, "LOCK.ACQUIRE door dora PX 600000 BLOCK 0");
        let reply = control.run(&line("alice"));
        assert!(!reply.is_error() && reply != Reply::Nil, "{}: {reply:?}", line("alice"));
        assert_eq!(carol.reply(), 1, "{ways:?} {}", line("alice"));
        assert!(dora.waits(), "{ways:?}: she waits for the last share");
        assert_eq!(control.run("LOCK.SHARE door thief"), Reply::Nil, "{ways:?}: nobody overtakes");
        for holder in ["bob", "carol"] {
            assert!(dora.waits(), "{ways:?}");
            control.run(&line(holder));
        }
        assert_eq!(dora.reply(), 1, "{ways:?} {}", line("bob"));
        carol.has_heard_nothing_else();
        clear(&mut control);
    }
}

#[test]
fn a_share_that_is_released_makes_room() {
    makes_room(|holder| format!("LOCK.RELEASE door {holder}"));
}

#[test]
fn a_share_that_others_remove_makes_room() {
    makes_room(|holder| format!("ZREM door {holder}"));
    makes_room(|_| "ZPOPMIN door".to_owned()); // alice's ends first, then bob's.
    makes_room(|_| "ZREMRANGEBYRANK door 0 0".to_owned());
}

#[test]
fn a_key_that_goes_serves_all_shares_at_the_head_of_the_line_and_no_more() {
    let (server, mut control) = shared();
    for line in ["DEL door", "UNLINK door", "RENAME door elsewhere", "EXPIRE door -1", "FLUSHALL"] {
        for way in Way::ALL {
            let mut writer = way.start(&server, "LOCK.ACQUIRE door writer PX 600000 BLOCK 0");
            let mut readers =
                ["r1", "r2"].map(|reader| way.start(&server, &format!("LOCK.SHARE door {reader} PX 600000 BLOCK 0")));
            let mut last = way.start(&server, "LOCK.REENTER door last PX 600000 BLOCK 0");
            assert!(!control.run(line).is_error());
            assert_eq!(writer.reply(), 1, "{way:?} {line}");
            assert!(readers.iter_mut().all(|reader| reader.waits()), "{way:?} {line}");
            assert!(!control.run(line).is_error());
            readers.iter_mut().for_each(|reader| assert_eq!(reader.reply(), 1, "{way:?} {line}"));
            assert!(last.waits(), "{way:?} {line}");
            assert!(!control.run(line).is_error());
            assert_eq!(last.reply(), 1, "{way:?} {line}");
            clear(&mut control);
        }
    }
}

#[test]
fn a_share_whose_lease_ends_makes_room_and_the_last_one_frees_the_lock() {
    let server = Server::start();
    let mut control = server.client();
    for way in Way::ALL {
        assert_eq!(control.run("LOCK.SHARE door alice PX 400"), 1);
        assert_eq!(control.run("LOCK.SHARE door bob PX 800"), 1);
        let mut carol = way.start(&server, "LOCK.SHARE door carol LIMIT 2 PX 400 BLOCK 0");
        let mut dora = way.start(&server, "LOCK.ACQUIRE door dora PX 600000 BLOCK 0");
        assert_eq!(carol.reply(), 1, "{way:?}");
        assert!(dora.waits(), "{way:?}");
        assert_eq!(dora.reply(), 1, "{way:?}");
        assert_eq!(control.run("LOCK.RELEASE door dora"), 0);
    }
}

#[test]
fn the_session_of_a_share_that_closes_makes_room() {
    let server = Server::start();
    let mut control = server.client();
    for way in Way::ALL {
        let mut alice = server.client();
        assert_eq!(alice.run("LOCK.SHARE door alice PX 60000 SESSION"), 1);
        assert_eq!(control.run("LOCK.SHARE door bob PX 60000 SESSION"), 1);
        let mut carol = way.start(&server, "LOCK.SHARE door carol LIMIT 2 PX 60000 BLOCK 0");
        drop(alice);
        assert_eq!(carol.reply(), 1, "{way:?}");
        assert_eq!(field(&mut control, "door", "holds"), 2, "{way:?}: bob's share stays");
        assert_eq!(control.run("LOCK.RELEASE door bob"), 0);
        assert_eq!(control.run("LOCK.RELEASE door carol"), 0);
        eventually("no session is left", || info_lock(&mut control, "sessions") == 0);
    }
}

#[test]
fn what_others_put_over_a_shared_lock_lets_the_wait_go_on() {
    let (server, mut control) = shared();
    for way in Way::ALL {
        let mut carol = way.start(&server, "LOCK.SHARE door carol LIMIT 1 PX 600000 BLOCK 0");
        for line in ["PEXPIRE door 70000", "SET door other PX 600000"] {
            control.run(line);
            assert!(carol.waits(), "{way:?} {line}");
        }
        assert_eq!(waiters_of(&mut control, "door"), 1, "{way:?}");
        assert_eq!(control.run("LOCK.RELEASE door other"), 0);
        assert_eq!(carol.reply(), 1, "{way:?}");
        clear(&mut control);
    }
}

#[test]
fn other_shares_that_come_in_their_place_are_waited_for() {
    let (server, mut control) = shared();
    for (line, way) in ["RENAME other door", "COPY other door REPLACE", "SWAPDB 0 1"].iter().zip(Way::ALL) {
        let mut carol = way.start(&server, "LOCK.SHARE door carol LIMIT 2 PX 600000 BLOCK 0");
        if line.starts_with("SWAPDB") {
            control.ok("SELECT 1");
        }
        let place = if line.starts_with("SWAPDB") { "door" } else { "other" };
        for (holder, ms) in [("dora", 70_000), ("erin", 80_000)] {
            assert_eq!(control.run(&format!("LOCK.SHARE {place} {holder} PX {ms}")), 1);
        }
        control.ok("SELECT 0");
        assert!(!control.run(line).is_error());
        assert!(carol.waits(), "{way:?} {line}");
        assert_eq!(control.run("LOCK.RELEASE door alice").code(), "NOTOWNER", "{line}");
        assert!(carol.waits(), "{way:?} {line}");
        assert_eq!(control.run("LOCK.RELEASE door dora"), 0);
        assert_eq!(carol.reply(), 1, "{way:?} {line}");
        carol.has_heard_nothing_else();
        clear(&mut control);
    }
}

#[test]
fn a_reload_keeps_the_shares_and_the_wait_goes_on() {
    let (server, mut control) = shared();
    for way in Way::ALL {
        let mut carol = way.start(&server, "LOCK.SHARE door carol LIMIT 2 PX 600000 BLOCK 0");
        let mut dora = way.start(&server, "LOCK.ACQUIRE door dora PX 600000 BLOCK 0");
        control.ok("DEBUG RELOAD");
        assert_eq!(field(&mut control, "door", "holds"), 2, "{way:?}");
        assert!(carol.waits() && dora.waits(), "{way:?}");
        assert_eq!(control.run("ZREM door bob"), 1);
        assert_eq!(carol.reply(), 1, "{way:?}");
        assert_eq!(control.run("LOCK.EXTEND door carol PX 100"), 100);
        assert_eq!(control.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(dora.reply(), 1, "{way:?}");
        clear(&mut control);
    }
}

#[test]
fn a_share_that_others_remove_while_nobody_waits_leaves_the_expiry_time_until_the_next_write() {
    let (_server, mut control) = shared();
    assert_eq!(control.run("ZREM door bob"), 1);
    assert!(control.pttl("door") > 80_000);
    assert_eq!(control.run("LOCK.EXTEND door alice PX 50000"), 50_000);
    assert!(control.pttl("door") <= 50_000);

    assert_eq!(control.run("LOCK.SHARE gate alice PX 100"), 1);
    assert_eq!(control.run("LOCK.SHARE gate bob PX 90000"), 1);
    assert_eq!(control.run("ZREM gate bob"), 1);
    eventually("the last lease ends", || control.run("LOCK.INFO gate").is_error());
    assert_eq!(control.run("LOCK.SHARE gate carol").code(), "WRONGTYPE");
}
