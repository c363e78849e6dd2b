//! A token has one form of a lock: it is told when it asks for another, and gives up its places for the others when it is
//! granted one.

use support::{Reply, Server, Waiter, Way, waiters_of};

const FORMS: [&str; 3] = ["LOCK.ACQUIRE", "LOCK.REENTER", "LOCK.SHARE"];

#[test]
fn who_holds_a_share_and_asks_for_the_lock_is_told_so_and_the_other_way_round() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.SHARE door a PX 60000"), 1);
    for options in ["", " BLOCK 0", " PX 1000 BLOCK 0 SESSION"] {
        for take in ["LOCK.ACQUIRE", "LOCK.REENTER"] {
            assert_eq!(client.run(&format!("{take} door a{options}")).code(), "OTHERFORM", "{take}{options}");
        }
    }
    assert_eq!(client.run("LOCK.ACQUIRE door a NX BLOCK 0").code(), "OTHERFORM");
    assert_eq!(client.run("LOCK.REENTER door a HOLD 2").code(), "OTHERFORM");
    assert_eq!(client.run("LOCK.RELEASE door a"), 0);
    for take in ["LOCK.ACQUIRE", "LOCK.REENTER"] {
        assert_eq!(client.run(&format!("{take} door a PX 60000")), 1);
        assert_eq!(client.run("LOCK.SHARE door a BLOCK 0").code(), "OTHERFORM", "{take}");
        assert_eq!(client.run("LOCK.SHARE door b"), Reply::Nil);
        assert_eq!(client.run("LOCK.RELEASE door a"), 0);
    }
    assert_eq!(client.run("DBSIZE"), 0);
}

#[test]
fn a_grant_of_one_form_gives_up_the_places_for_the_others() {
    for (first, way) in FORMS.iter().flat_map(|form| Way::ALL.map(|way| (form, way))) {
        let server = Server::start();
        let mut control = server.client();
        assert_eq!(control.run("LOCK.ACQUIRE door holder PX 600000"), 1);
        let mut granted = way.start(&server, &format!("{first} door a PX 60000 BLOCK 0"));
        let others: Vec<_> = FORMS.iter().filter(|form| *form != first).collect();
        let mut others: Vec<_> =
            others.iter().map(|form| way.start(&server, &format!("{form} door a PX 60000 BLOCK 0"))).collect();
        let mut next = Waiter::start(&server, "LOCK.ACQUIRE door b BLOCK 0");
        assert_eq!(control.run("LOCK.RELEASE door holder"), 0);
        assert_eq!(granted.reply(), 1, "{first} {way:?}");
        for other in &mut others {
            assert_eq!(other.reply(), Reply::Nil, "{first} {way:?}");
            other.has_heard_nothing_else();
        }
        assert_eq!(waiters_of(&mut control, "door"), 1);
        assert_eq!(control.run("LOCK.RELEASE door a"), 0);
        assert_eq!(next.reply(), 1);
    }
}

#[test]
fn a_lock_that_is_taken_at_once_gives_up_the_places_that_are_away() {
    for (first, second) in
        [("LOCK.SHARE", "LOCK.ACQUIRE"), ("LOCK.ACQUIRE", "LOCK.SHARE"), ("LOCK.REENTER", "LOCK.ACQUIRE")]
    {
        let server = Server::start();
        let mut control = server.client();
        assert_eq!(control.run("LOCK.ACQUIRE door holder PX 600000"), 1);
        assert_eq!(control.run(&format!("{first} door a BLOCK 20")), Reply::Nil);
        assert_eq!(control.run("LOCK.RELEASE door holder"), 0);
        assert_eq!(control.run(&format!("{second} door a PX 60000")), 1);
        let mut b = Waiter::start(&server, "LOCK.ACQUIRE door b PX 60000 BLOCK 0");
        let mut a = Waiter::send_on(&server, server.client(), &support::bytes_of(&format!("{first} door a BLOCK 0")));
        if first == "LOCK.REENTER" {
            a.wait_until_blocked();
            assert_eq!(control.run("DEL door"), 1);
            assert_eq!(b.reply(), 1, "the place was given up");
        } else {
            assert_eq!(a.reply().code(), "OTHERFORM");
            assert_eq!(control.run("LOCK.RELEASE door a"), 0);
            assert_eq!(b.reply(), 1);
        }
    }
}
