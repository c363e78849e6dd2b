//! Sends the commands of docs/guides/slow-locks.md as the operator of docs/security.md.

use std::fs;

use support::{Client, Reply, Server, Waiter, repository};

use super::blocks::spans;

fn page(name: &str) -> String {
    fs::read_to_string(repository().join("docs").join(name)).expect("a page")
}

/// Returns the commands of a page: those of its operator, those in its text, and those to which it links.
fn commands(page: &str, client: &mut Client) -> Vec<String> {
    let sent = page.lines().filter_map(|line| line.strip_prefix("operator> ")).map(str::to_owned);
    let mut is_command = |span: &String| {
        let name = span.split(' ').next().unwrap_or_default();
        name == name.to_uppercase()
            && name.len() > 1
            && client.run(&format!("COMMAND INFO {name}")).items() != [Reply::Nil]
    };
    let shown = spans(page).into_iter().filter(|span| span.contains(' ') && is_command(span));
    let linked = page.split("[LOCK.").skip(1).filter_map(|rest| rest.split_once("](")).map(|(name, _)| match name {
        "INFO" | "WAITERS" => format!("LOCK.{name} key"),
        "SLOWLOG" => "LOCK.SLOWLOG GET".to_owned(),
        name => format!("LOCK.{name}"),
    });
    sent.chain(shown).chain(linked).collect()
}

#[test]
fn operator_may_do_what_troubleshooting_asks_for() {
    let server = Server::start();
    let (mut admin, mut holder, mut operator) = (server.client(), server.client(), server.client());
    let security = page("security.md");
    let rights = security.lines().filter_map(|line| line.strip_prefix("admin> ACL SETUSER operator "));
    for rule in rights {
        admin.ok(&format!("ACL SETUSER operator {rule}"));
    }
    operator.ok("AUTH operator secret");
    assert_eq!(holder.run("LOCK.ACQUIRE lock:billing alice PX 600000 SESSION"), 1);
    let _waiter = Waiter::start(&server, "LOCK.ACQUIRE lock:billing bob PX 600000 BLOCK 0");
    let id = holder.id().to_string();
    let commands = commands(&page("guides/slow-locks.md"), &mut admin);
    for wanted in [
        "LOCK.QUEUES",
        "LOCK.WAITERS",
        "LOCK.SLOWLOG",
        "ZRANGE",
        "DEL",
        "CLIENT LIST",
        "CLIENT KILL",
        "CLIENT UNPAUSE",
        "LATENCY",
        "SELECT",
    ] {
        assert!(commands.iter().any(|command| command.starts_with(wanted)), "{wanted}: {commands:?}");
    }
    for command in commands {
        let words = command.split(' ').map(|word| match word {
            "key" | "billing" => "lock:billing",
            "owner" => "alice",
            "event" => "lock-handover",
            "id" => &id,
            "n" => "0",
            word => word,
        });
        let reply = operator.run(&words.collect::<Vec<_>>().join(" "));
        assert!(!reply.is_error() || !reply.error().starts_with("NOPERM"), "{command}: {reply:?}");
    }
    assert!(operator.run("LOCK.ACQUIRE lock:gate carol PX 9000").error().starts_with("NOPERM"));
}
