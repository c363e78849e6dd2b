//! symfony/lock, whose lock that is held alone lies in a Sorted Set like that of a shared one.

use support::{PATIENCE, Server, Waiter, eventually};

use crate::documents::programs::{Running, is_installed};

/// A lock of the package, and a client that sends LOCK commands.
const SCENE: &str = r"<?php
require 'Symfony/Component/Lock/autoload.php';
use Symfony\Component\Lock\{LockFactory, Store\RedisStore};
[$theirs, $ours] = [new Redis(), new Redis()];
foreach ([$theirs, $ours] as $client) {
    $client->connect('127.0.0.1', 6379);
}
$lock = (new LockFactory(new RedisStore($theirs)))->createLock('door', 60);
$take = fn (string $command) => $ours->rawCommand($command, 'door', 'raw', 'PX', '60000');
$release = fn () => $ours->rawCommand('LOCK.RELEASE', 'door', 'raw');
$say = fn (...$replies) => print(json_encode($replies));
";

/// Lets the package and the client act, if the package is installed.
fn act(server: &Server, acts: &str) -> Option<Running> {
    let program = || format!("{SCENE}{acts}");
    is_installed("symfony/lock").then(|| Running::start("php", &program(), server.port()))
}

/// They act on a server of their own, and say this.
#[track_caller]
fn says(acts: &str, expected: &str) {
    let server = Server::start();
    if let Some(mut program) = act(&server, acts) {
        assert_eq!(program.said_within(PATIENCE).as_deref(), Ok(expected));
    }
}

#[test]
fn its_lock_keeps_out_who_wants_the_lock_alone() {
    says("$say($lock->acquire(), $take('LOCK.ACQUIRE'), $take('LOCK.REENTER'));", "[true,false,false]");
    says("$say($lock->acquireRead(), $take('LOCK.ACQUIRE'), $take('LOCK.REENTER'));", "[true,false,false]");
}

#[test]
fn a_mutex_and_a_share_keep_it_out() {
    for take in ["LOCK.ACQUIRE", "LOCK.SHARE"] {
        let acts = format!("$say($take('{take}'), $lock->acquire(), $release(), $lock->acquire());");
        says(&acts, "[1,false,0,true]");
    }
}

#[test]
fn who_waits_in_line_is_served_when_it_releases() {
    let server = Server::start();
    let mut control = server.client();
    let acts = "$lock->acquire(); while (!$ours->exists('released')) usleep(1000); $lock->release();";
    let Some(mut program) = act(&server, acts) else { return };
    eventually("the package has its lock", || control.run("ZCARD door") == 2);
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
    control.ok("SET released 1");
    assert_eq!(bob.reply(), 1);
    assert_eq!(program.said_within(PATIENCE).as_deref(), Ok(""));
    assert_eq!(control.run("GET door"), "bob");
}

/// Why the guide keeps shares away from its keys.
#[test]
fn a_share_is_granted_beside_a_lock_that_it_holds_alone() {
    says("$say($lock->acquire(), $take('LOCK.SHARE'), $lock->isAcquired());", "[true,1,true]");
}

/// Why it has to release its locks itself.
#[test]
fn a_release_with_its_token_leaves_a_member_behind() {
    let acts = "$lock->acquire();
        [$token] = array_values(array_diff($ours->zRange('door', 0, -1), ['__write__']));
        $say($ours->rawCommand('LOCK.RELEASE', 'door', $token), $ours->zRange('door', 0, -1));";
    says(acts, "[0,[\"__write__\"]]");
}
