//! Reasons why a server would crash after a module is unloaded.
//!
//! Servers keep pointers to the command that a connection has sent last and to the commands that it has queued in MULTI. Newer
//! servers also keep pointers to the commands in its pipeline. They follow these pointers later (CLIENT LIST, EXEC), also after
//! the module is unloaded and the memory has another use. And they crash when they apply an ACL rule that names a command that no
//! longer exists. This is so on Redis 7.0 to 8.6 and Valkey 8.1. Valkey 9.1 checks the rules, but not the connections.

use crate::server::calls::CallMode;
use crate::server::context::{Context, field_in};
use crate::server::state::state;

/// Records that the module has just been loaded.
pub(super) fn loaded<M>(ctx: &mut Context<'_, M>) {
    state().executed_at_load.set(executed_commands(ctx));
}

/// Returns the number of commands that the server has executed, `None` if INFO does not say.
fn executed_commands<M>(ctx: &mut Context<'_, M>) -> Option<u64> {
    ctx.server_info(c"stats", c"total_commands_processed")?.parse().ok()
}

/// Returns why the server would crash if the commands whose names begin with `prefix` were removed, `None` if it would not crash.
/// Without ACL or CLIENT, which `rename-command` may have renamed, their part of the check is left out.
pub(super) fn danger<M>(ctx: &mut Context<'_, M>, prefix: &str) -> Option<String> {
    // While the command that loads the module still runs, no connection can have looked up a command of the module.
    let executed = executed_commands(ctx);
    let is_new = executed.is_some() && state().executed_at_load.get() == executed;
    let [users, clients] = [c"ACL", c"CLIENT"].map(|command| ctx.call(command, CallMode::Read, &[b"LIST"]).ok());
    let by_rules = users.and_then(|users| {
        let mut lines = (0..).map_while(|index| users.element(index));
        lines.find_map(|user| danger_by_user(&user.text(), prefix))
    });
    by_rules.or_else(|| clients?.whole().text().lines().find_map(|client| danger_by_client(client, prefix, is_new)))
}

/// Returns why a user, as a line of ACL LIST describes it, is a danger.
fn danger_by_user(user: &str, prefix: &str) -> Option<String> {
    let mut words = user.split_whitespace();
    let name = words.nth(1)?;
    // A selector is enclosed in parentheses.
    let mut rules = words.map(|word| word.trim_matches(['(', ')']));
    let rule = rules.find(|rule| rule.strip_prefix(['+', '-']).is_some_and(|command| command.starts_with(prefix)))?;
    Some(format!("the ACL rule {rule} of the user {name} names a command of it, and the server would crash"))
}

/// Returns why a connection, as a line of CLIENT LIST describes it, is a danger.
fn danger_by_client(client: &str, prefix: &str, is_new: bool) -> Option<String> {
    let field = |name| field_in(client, ' ', name);
    let (id, last, flags) = (field("id")?, field("cmd")?, field("flags")?);
    // Only the connection that unloads the module can be in EXEC.
    let is_in_multi = flags.contains('x') && field("multi")? != "0" && last != "exec";
    let what = match () {
        () if last.starts_with(prefix) => format!("has sent {last} last"),
        () if is_new => return None,
        () if is_in_multi => "is in MULTI".to_owned(),
        // The server may have looked up the commands behind the one that blocks.
        () if flags.contains('b') => "is blocked".to_owned(),
        () => return None,
    };
    Some(format!("connection {id} {what}, and the server may crash: close it first"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_that_names_command_is_danger() {
        for user in [
            "user bob on #5e88 ~* resetchannels -@all +get +lock.acquire",
            "user bob on nopass ~* &* +@all -lock.info",
            "user bob on nopass resetchannels -@all (~a* resetchannels -@all +lock.acquire)",
        ] {
            let danger = danger_by_user(user, "lock.").unwrap_or_else(|| panic!("{user}"));
            assert!(danger.contains("bob"), "{danger}");
        }
    }

    #[test]
    fn rule_that_names_no_command_is_harmless() {
        let user = "user lock.bob on nopass ~lock.* %R~lock.x &lock.y -@all +@lock +get";
        assert_eq!(danger_by_user(user, "lock."), None);
    }

    #[test]
    fn connection_with_pointer_to_command_is_danger() {
        for (client, is_danger) in [
            ("id=3 flags=N multi=-1 cmd=get user=lock.bob", false),
            ("id=3 name=cmd flags=N multi=-1 cmd=lock.release user=default", true),
            ("id=3 flags=x multi=2 cmd=get user=default", true),
            ("id=3 flags=b multi=-1 cmd=blpop user=default", true),
            ("id=3 flags=x multi=0 cmd=multi user=default", false),
            // Valkey shows the commands of the last transaction.
            ("id=3 flags=N multi=2 cmd=get user=default", false),
            // A closed connection is listed until the end of the event-loop iteration.
            ("id=3 flags=A multi=-1 cmd=lock.release user=default", true),
            ("id=3 flags=x multi=3 cmd=exec user=default", false),
            ("id=3 flags=N multi=-1 cmd=NULL user=default", false),
        ] {
            assert_eq!(danger_by_client(client, "lock.", false).is_some(), is_danger, "{client}");
        }
    }

    #[test]
    fn blocked_connection_is_no_danger_to_new_module() {
        for (client, is_danger) in [
            ("id=3 flags=x multi=2 cmd=get user=default", false),
            ("id=3 flags=b multi=-1 cmd=blpop user=default", false),
            ("id=3 flags=N multi=-1 cmd=lock.release user=default", true),
        ] {
            assert_eq!(danger_by_client(client, "lock.", true).is_some(), is_danger, "{client}");
        }
    }
}
