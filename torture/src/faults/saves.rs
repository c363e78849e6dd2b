//! Files that the server writes while everything goes on.

use support::Reply;

use super::Disturber;
use super::replicas::eventually;
use crate::ending;
use crate::link::Link;
use crate::world::World;

/// One of the server's files, and what INFO says of it.
pub struct File {
    command: &'static str,
    under_way: &'static [&'static str],
    status: &'static str,
}

pub const DATA: File =
    File { command: "BGSAVE", under_way: &["rdb_bgsave_in_progress"], status: "rdb_last_bgsave_status" };
pub const LOG: File = File {
    command: "BGREWRITEAOF",
    under_way: &["aof_rewrite_in_progress", "aof_rewrite_scheduled"],
    status: "aof_last_bgrewrite_status",
};
const CHECK: &str = "files written";

impl Disturber<'_> {
    /// Has the server write a file, and sees that it does.
    pub(super) fn save(&mut self, file: &File) {
        let world = self.world;
        world.note_fault(file.command);
        let Some(mut link) = self.link() else { return };
        let reply =
            if file.command == "BGSAVE" { link.run(file.command) } else { ending::rewrite_file(world, &mut link) };
        // It is refused while another process writes a file, for a replica say.
        if matches!(reply, Reply::Status(_)) {
            world.figures.fault(file.command);
            file.check(world, &mut link);
        }
        self.link = (reply != Reply::Closed).then_some(link);
    }
}

impl File {
    fn check(&self, world: &World, link: &mut Link) {
        world.figures.begins(CHECK);
        let is_written = eventually(world, || {
            let counts = self.under_way.iter().map(|name| ending::figure(link, "persistence", name));
            // Nothing is known where the connection is closed.
            counts.flatten().sum::<i64>() == 0
        });
        let status = ending::text(link, "persistence", self.status);
        let is_wrong = status.as_ref().is_some_and(|status| status != "ok");
        if is_wrong || !is_written && !world.court.is_over() {
            let text = format!("{}: written in time: {is_written}; {}: {status:?}", self.command, self.status);
            world.court.charge("the server writes its files", text);
        } else if status.is_some() {
            world.figures.checked(CHECK);
        }
    }
}
