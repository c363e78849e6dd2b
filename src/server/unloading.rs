//! What the server would not outlive when a module's commands are gone.
//!
//! Servers keep pointers to the command that a connection has sent last, to those that it has queued in MULTI, and the
//! newer ones to those that stand in its pipeline. They look at them later (CLIENT LIST, EXEC), also when the module has
//! gone and the memory is somebody else's. And they end when they apply an ACL rule that names a command which is not there
//! any more. Seen on Redis 7.0 to 8.6 and Valkey 8.1; Valkey 9.1 looks at the rules, but not at the connections.

use redis_module::raw::RedisModuleCtx;

use super::answer::{Answer, value_in};
use super::main_thread::MainThread;
use super::server_info::ServerInfo;

/// How many commands the server had executed when the module was loaded, as INFO shows it.
static EXECUTED_AT_LOAD: MainThread<Option<u64>> = MainThread::new(None);

/// Records that the module has just been loaded.
///
/// # Safety
///
/// `ctx` is a context of the module that lives.
pub(super) unsafe fn loaded(ctx: *mut RedisModuleCtx) {
    // SAFETY: by contract.
    let executed = unsafe { executed_commands(ctx) };
    EXECUTED_AT_LOAD.with(|at_load| *at_load = executed);
}

/// Returns whether no command has been executed since the module was loaded: the one that has loaded it is not over. Then no
/// connection can have looked up a command of the module.
///
/// # Safety
///
/// `ctx` is a context of the module that lives.
pub(super) unsafe fn is_being_loaded(ctx: *mut RedisModuleCtx) -> bool {
    // SAFETY: by contract.
    let executed = unsafe { executed_commands(ctx) };
    executed.is_some() && EXECUTED_AT_LOAD.with(|at_load| *at_load == executed)
}

/// # Safety
///
/// `ctx` is a context of the module that lives.
unsafe fn executed_commands(ctx: *mut RedisModuleCtx) -> Option<u64> {
    // SAFETY: by contract.
    unsafe { ServerInfo::of(ctx, c"stats") }.field(c"total_commands_processed")?.parse().ok()
}

/// Returns why the server would crash if the commands whose names begin with `prefix` went away, `None` if it would not.
/// What the server does not tell, because ACL or CLIENT have other names, is taken for harmless.
///
/// `is_new` says that the module is being loaded, so that no connection that waits can have looked up its commands.
///
/// # Safety
///
/// `ctx` is a context of the module that lives.
pub(super) unsafe fn danger(ctx: *mut RedisModuleCtx, prefix: &str, is_new: bool) -> Option<String> {
    // SAFETY: by contract.
    let [users, clients] =
        unsafe { [Answer::to(ctx, c"ACL", c"LIST", None), Answer::to(ctx, c"CLIENT", c"LIST", None)] };
    let by_rules = users.as_ref().and_then(|users| users.texts().find_map(|user| danger_by_user(&user, prefix)));
    by_rules.or_else(|| clients.as_ref()?.text().lines().find_map(|client| danger_by_client(client, prefix, is_new)))
}

/// Looks at a line of ACL LIST.
fn danger_by_user(user: &str, prefix: &str) -> Option<String> {
    let mut words = user.split_whitespace();
    let name = words.nth(1)?;
    // A selector stands in parentheses.
    let mut rules = words.map(|word| word.trim_matches(['(', ')']));
    let rule = rules.find(|rule| rule.strip_prefix(['+', '-']).is_some_and(|command| command.starts_with(prefix)))?;
    Some(format!("the ACL rule {rule} of the user {name} names a command of it, and the server would crash"))
}

/// Looks at a line of CLIENT LIST.
fn danger_by_client(client: &str, prefix: &str, is_new: bool) -> Option<String> {
    let field = |name| value_in(client, ' ', name);
    let (id, last, flags) = (field("id")?, field("cmd")?, field("flags")?);
    // In EXEC there is nobody but the one who unloads the module.
    let is_in_multi = flags.contains('x') && field("multi")? != "0" && last != "exec";
    let what = match () {
        () if last.starts_with(prefix) => format!("has sent {last} last"),
        () if is_new => return None,
        () if is_in_multi => "is in MULTI".to_owned(),
        // What stands behind the command that it waits with may have been looked up already.
        () if flags.contains('b') => "is blocked".to_owned(),
        () => return None,
    };
    Some(format!("connection {id} {what}, and the server may crash: close it first"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_name_a_command_are_found_in_users_and_selectors() {
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
    fn rules_that_name_no_command_are_harmless() {
        let user = "user lock.bob on nopass ~lock.* %R~lock.x &lock.y -@all +@lock +get";
        assert_eq!(danger_by_user(user, "lock."), None);
    }

    #[test]
    fn connections_that_know_a_command_are_found() {
        for (client, is_danger) in [
            ("id=3 flags=N multi=-1 cmd=get user=lock.bob", false),
            ("id=3 name=cmd flags=N multi=-1 cmd=lock.release user=default", true),
            ("id=3 flags=x multi=2 cmd=get user=default", true),
            ("id=3 flags=b multi=-1 cmd=blpop user=default", true),
            ("id=3 flags=x multi=0 cmd=multi user=default", false),
            // Valkey shows the commands of the last transaction.
            ("id=3 flags=N multi=2 cmd=get user=default", false),
            // It is listed until the end of the round.
            ("id=3 flags=A multi=-1 cmd=lock.release user=default", true),
            ("id=3 flags=x multi=3 cmd=exec user=default", false),
            ("id=3 flags=N multi=-1 cmd=NULL user=default", false),
        ] {
            assert_eq!(danger_by_client(client, "lock.", false).is_some(), is_danger, "{client}");
        }
    }

    #[test]
    fn waiting_connection_is_no_danger_to_a_new_module() {
        for (client, is_danger) in [
            ("id=3 flags=x multi=2 cmd=get user=default", false),
            ("id=3 flags=b multi=-1 cmd=blpop user=default", false),
            ("id=3 flags=N multi=-1 cmd=lock.release user=default", true),
        ] {
            assert_eq!(danger_by_client(client, "lock.", true).is_some(), is_danger, "{client}");
        }
    }
}
