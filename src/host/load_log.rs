//! The lines in the server's log after the module was loaded.

use super::state::{Context, Locks};
use crate::server::{self, Module};

/// Logs the versions of module and server, the features that the server lacks, and settings that endanger locks.
pub fn log(ctx: &mut Context<'_>) {
    let server = server_name(ctx);
    ctx.notice(&format!("redis-lock {} is loaded into {server}", Locks::VERSION));
    if !server::has_own_acl_categories() {
        ctx.notice("this server has no ACL category @lock, so ACL rules must name the LOCK commands");
    }
    if !ctx.has_command(c"CONFIG") {
        ctx.notice(
            "CONFIG is renamed: LATENCY has no events of this module, and min-replicas-max-lag is taken to be 10",
        );
    }
    let policy = ctx.server_info(c"memory", c"maxmemory_policy");
    if let Some(policy) = policy.filter(|policy| policy != "noeviction") {
        ctx.warn(&format!("maxmemory-policy is {policy}, so the server may evict locks that are held; use noeviction"));
    }
}

/// Returns the name and version of the server, from INFO.
fn server_name(ctx: &mut Context<'_>) -> String {
    let mut named = |name, field| ctx.server_info(c"server", field).map(|version| format!("{name} {version}"));
    // Valkey and Redict also show the version of Redis that they are compatible with.
    let server = named("Valkey", c"valkey_version")
        .or_else(|| named("Redict", c"redict_version"))
        .or_else(|| named("Redis", c"redis_version"));
    server.unwrap_or_else(|| "an unknown server".to_owned())
}
