//! The recipes in Rust of docs/guides/recipes.md, and clients that wait by NOTIFY. The recipes in other languages are run in
//! documents/snippets.rs.

use std::fs;
use std::thread;
use std::time::Duration;

use support::parallel::for_each;
use support::{Server, eventually, info_lock, repository, waiters_of};

use super::fred;
use super::redis_rs_in_slices::with_lock;
use crate::documents::blocks::every_block;
use crate::documents::programs::{is_installed, said, start};

/// Runs a program in Rust with so much patience; what it did, if it had the lock.
type Program = fn(&Server, Duration) -> Option<&'static str>;

const PROGRAMS: [(&str, Program); 2] = [("redis-rs", redis_rs), ("fred", fred::run)];

fn redis_rs(server: &Server, patience: Duration) -> Option<&'static str> {
    let client = redis::Client::open(("127.0.0.1", server.port())).expect("an address");
    let mut observer = server.client();
    let done = with_lock(&client, "door", [Duration::from_secs(30), patience], |token| {
        assert_eq!(observer.run("GET door").string(), token);
        "the door is ours"
    });
    done.expect("a server that answers")
}

#[test]
fn a_program_in_rust_takes_and_releases_the_lock() {
    for (name, run) in PROGRAMS {
        let server = Server::start();
        assert_eq!(run(&server, Duration::from_secs(20)), Some("the door is ours"), "{name}");
        assert_eq!(server.client().run("EXISTS door"), 0, "{name}");
    }
}

#[test]
fn a_program_in_rust_waits_over_several_slices() {
    for_each(&PROGRAMS, |(name, run)| {
        let server = Server::start();
        let mut client = server.client();
        assert_eq!(client.run("LOCK.ACQUIRE door holder PX 60000"), 1);
        thread::scope(|scope| {
            let program = scope.spawn(|| run(&server, Duration::from_secs(60)));
            eventually("a slice ends", || info_lock(&mut client, "timed_out") > 0);
            eventually("it waits", || waiters_of(&mut client, "door") == 1);
            assert_eq!(client.run("LOCK.RELEASE door holder"), 0);
            assert_eq!(program.join().expect("no panic"), Some("the door is ours"), "{name}");
        });
        assert_eq!(client.run("EXISTS door"), 0, "{name}");
    });
}

#[test]
fn a_program_in_rust_leaves_the_line_when_it_gives_up() {
    for (name, run) in PROGRAMS {
        let server = Server::start();
        let mut client = server.client();
        assert_eq!(client.run("LOCK.ACQUIRE door holder PX 60000"), 1);
        assert_eq!(run(&server, Duration::from_millis(100)), None, "{name}");
        assert_eq!(waiters_of(&mut client, "door"), 0, "{name}");
        assert_eq!(client.run("LOCK.RELEASE door holder"), 0);
        assert_eq!(client.run("EXISTS door"), 0, "{name}: its place is not kept");
    }
}

#[test]
fn a_lock_that_was_lost_meanwhile_is_an_error() {
    let server = Server::start();
    let client = redis::Client::open(("127.0.0.1", server.port())).expect("an address");
    let mut other = server.client();
    let spans = [Duration::from_secs(30), Duration::from_secs(20)];
    let lost = with_lock(&client, "door", spans, |_| assert_eq!(other.run("DEL door"), 1));
    assert_eq!(lost.expect_err("it was lost").code(), Some("NOTHELD"));
}

#[test]
fn the_recipes_in_rust_are_the_programs_that_are_run() {
    let programs = ["redis_rs_in_slices", "fred_in_slices"].map(|name| {
        let path = repository().join(format!("tests/integration/clients/{name}.rs"));
        let program = fs::read_to_string(path).expect("a program");
        let (_, program) = program.split_once("\n\n").expect("a line about the file, and the program");
        program.to_owned()
    });
    let blocks = every_block("rust").into_iter().filter(|block| block.document.ends_with("recipes.md"));
    let shown: Vec<_> = blocks.map(|block| block.lines.join("\n") + "\n").collect();
    assert_eq!(shown, programs);
}

/// Listens on one connection, waits by NOTIFY from another one, and says the message that comes.
const NOTIFIED: [(&str, &str); 3] = [
    (
        "javascript",
        "
import { createClient } from 'redis'
const client = await createClient({ socket: { port: 6379 } }).connect()
const listener = await client.duplicate().connect()
let hear
const heard = new Promise(resolve => hear = resolve)
await listener.sSubscribe('mine', hear)
await client.sendCommand(['LOCK.ACQUIRE', 'door', 'first', 'PX', '30000'])
console.log(await client.sendCommand('LOCK.ACQUIRE door second PX 30000 BLOCK 20000 NOTIFY mine'.split(' ')))
await client.sendCommand(['LOCK.RELEASE', 'door', 'first'])
console.log(await heard)
client.destroy()
listener.destroy()",
    ),
    (
        "go",
        r#"
package main
import (
	"fmt"
	"strings"
	"github.com/gomodule/redigo/redis"
)
func main() {
	listener, _ := redis.Dial("tcp", "127.0.0.1:6379")
	client, _ := redis.Dial("tcp", "127.0.0.1:6379")
	listener.Do("SSUBSCRIBE", "mine")
	client.Do("LOCK.ACQUIRE", "door", "first", "PX", "30000")
	options := redis.Args{}.AddFlat(strings.Fields("door second PX 30000 BLOCK 20000 NOTIFY mine"))
	reply, _ := redis.String(client.Do("LOCK.ACQUIRE", options...))
	fmt.Println(reply)
	client.Do("LOCK.RELEASE", "door", "first")
	message, _ := redis.Strings(listener.Receive())
	fmt.Println(message[2])
}"#,
    ),
    (
        "c",
        r#"
#include <hiredis/hiredis.h>
#include <stdio.h>
int main(void)
{
    redisContext *listener = redisConnect("127.0.0.1", 6379), *client = redisConnect("127.0.0.1", 6379);
    redisReply *reply = NULL;
    redisCommand(listener, "SSUBSCRIBE mine");
    redisCommand(client, "LOCK.ACQUIRE door first PX 30000");
    reply = redisCommand(client, "LOCK.ACQUIRE door second PX 30000 BLOCK 20000 NOTIFY mine");
    puts(reply->str);
    redisCommand(client, "LOCK.RELEASE door first");
    redisGetReply(listener, (void **)&reply);
    puts(reply->element[2]->str);
    return 0;
}"#,
    ),
];

#[test]
fn who_listens_with_node_redis_redigo_or_hiredis_hears_of_a_grant() {
    for (language, program) in NOTIFIED.into_iter().filter(|(language, _)| is_installed(language)) {
        let server = Server::start();
        let said = said(start(language, program, server.port())).expect("a program that ends well");
        assert!(said.starts_with("WAITING\ngranted ") && said.ends_with(" 0 second door\n"), "{language}: {said}");
    }
}
