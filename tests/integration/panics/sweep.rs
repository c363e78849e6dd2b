//! One entry after the other panics, at one place after the other.

use support::{Reply, Way, module_beside};

use super::scene::Scene;

/// An entry, by its name in the log, with something that makes the server call it.
pub struct Sweep {
    pub entry: &'static str,
    act: fn(&mut Scene),
    /// The first place.
    from: usize,
}

const fn sweep(entry: &'static str, act: fn(&mut Scene)) -> Sweep {
    Sweep { entry, act, from: 0 }
}

/// Far more than any entry has.
const MAX_PLACES: usize = 300;

const TAKING: &[Sweep] = &[
    sweep("lock.acquire", |scene| scene.ask("LOCK.ACQUIRE door hal PX 60000 BLOCK 0")),
    sweep("lock.acquire", |scene| scene.ask_for_message("LOCK.ACQUIRE door hal PX 60000 BLOCK 0")),
    sweep("lock.acquire", |scene| scene.says("LOCK.ACQUIRE shed hal PX 1000 SESSION")),
    sweep("lock.reenter", |scene| scene.says("LOCK.REENTER room alice PX 1000 SESSION")),
    sweep("lock.reenter", |scene| scene.ask("LOCK.REENTER door hal PX 60000 BLOCK 0 SESSION")),
    sweep("lock.share", |scene| scene.says("LOCK.SHARE hall hal PX 1000 LIMIT 3 SESSION")),
    sweep("lock.share", |scene| scene.ask("LOCK.SHARE door hal PX 60000 BLOCK 0")),
];

const OTHER_COMMANDS: &[Sweep] = &[
    sweep("lock.release", |scene| scene.says("LOCK.RELEASE door alice")),
    sweep("lock.release", |scene| scene.says("LOCK.RELEASE door bob")),
    sweep("lock.release", |scene| scene.says("LOCK.RELEASE hall alice")),
    sweep("lock.release", |scene| scene.says("LOCK.RELEASE yard dave")),
    sweep("lock.extend", |scene| scene.says("LOCK.EXTEND yard dave PX 2000")),
    sweep("lock.fence", |scene| scene.says("LOCK.FENCE door alice counter")),
    sweep("lock.info", |scene| scene.says("LOCK.INFO door")),
    sweep("lock.waiters", |scene| scene.says("LOCK.WAITERS door")),
    sweep("lock.queues", |scene| scene.says("LOCK.QUEUES")),
    sweep("lock.slowlog", |scene| scene.says("LOCK.SLOWLOG GET")),
];

const BACKGROUND: &[Sweep] = &[
    sweep("timer descriptor", |scene| scene.says("LOCK.EXTEND door alice PX 10")),
    sweep("timer", |scene| scene.says("PEXPIRE door 10")),
    sweep("timer", |scene| scene.ask("LOCK.ACQUIRE door hal PX 60000 BLOCK 10")),
    sweep("timer", |scene| scene.says("PEXPIRE yard 10")),
    sweep("timer", |scene| scene.dave = scene.server.client()),
    sweep("round", |scene| scene.says("PING")),
    sweep("cron", |scene| scene.says("PING")),
];

const EVENTS: &[Sweep] = &[
    sweep("key event", |scene| scene.says("DEL door yard")),
    sweep("flush", |scene| scene.says("FLUSHALL")),
    sweep("swap", |scene| ["SWAPDB 0 1", "SWAPDB 0 1"].into_iter().for_each(|line| scene.says(line))),
    sweep("loading", |scene| scene.says("DEBUG RELOAD")),
    sweep("role change", become_replica_and_master),
    sweep("client change", |scene| scene.dave = scene.server.client()),
    sweep("module change", load_another_module),
];

const BLOCKED_CLIENTS: &[Sweep] = &[
    sweep("unblock", |scene| scene.says("LOCK.RELEASE door alice")),
    sweep("unblock", |scene| scene.unblock("bob", "TIMEOUT")),
    sweep("disconnect", |scene| scene.unblock("bob", "ERROR")),
    sweep("free", |scene| scene.says("LOCK.RELEASE door alice")),
    // Nothing can panic at the first place.
    Sweep { entry: "end of a handle", act: |scene| scene.says("LOCK.RELEASE door alice"), from: 1 },
];

const OTHERS: &[Sweep] = &[
    sweep("setting", |scene| scene.says("CONFIG SET lock.max-waiters 1000")),
    sweep("info", |scene| scene.says("INFO lock")),
    sweep("scan", |scene| scene.says("LOCK.INFO room")),
];

/// Returns all sweeps. Each group has a test, so that several are played in parallel.
pub fn sweeps() -> impl Iterator<Item = &'static Sweep> {
    [TAKING, OTHER_COMMANDS, BACKGROUND, EVENTS, BLOCKED_CLIENTS, OTHERS].into_iter().flatten()
}

impl Scene {
    /// Sends a command that does not wait, with any reply.
    fn says(&mut self, line: &str) {
        let reply = self.alice.run(line);
        assert!(!matches!(reply, Reply::Closed | Reply::Other(_)), "{line}: {reply:?}");
    }

    /// Sends a command that waits.
    fn ask(&mut self, line: &str) {
        self.others.push(Way::Blocked.send(&self.server, line));
    }

    fn ask_for_message(&mut self, line: &str) {
        self.others.push(Way::Notified.send(&self.server, line));
    }

    fn unblock(&mut self, name: &str, how: &str) {
        let id = self.id_of(name);
        self.says(&format!("CLIENT UNBLOCK {id} {how}"));
    }
}

fn become_replica_and_master(scene: &mut Scene) {
    scene.admin.ok("REPLICAOF 127.0.0.1 1");
    scene.admin.ok("REPLICAOF NO ONE");
}

fn load_another_module(scene: &mut Scene) {
    let path = module_beside("witness");
    scene.admin.ok(&format!("MODULE LOAD {}", path.display()));
}

#[track_caller]
fn play(sweeps: &[Sweep]) {
    for sweep in sweeps {
        let mut scene = Scene::begin();
        let panicked = (sweep.from..MAX_PLACES).take_while(|&place| {
            let panicked = scene.panics(sweep.entry, place, sweep.act);
            scene.goes_on();
            panicked
        });
        let count = panicked.count();
        assert!(count > 0, "{} did not panic", sweep.entry);
        println!("{count} panics in {}", sweep.entry);
        assert_eq!(scene.panics_in_log(sweep.entry), count, "{}", sweep.entry);
    }
}

#[test]
fn panics_in_commands_that_take_a_lock() {
    play(TAKING);
}

#[test]
fn panics_in_other_commands() {
    play(OTHER_COMMANDS);
}

#[test]
fn panics_in_timers_iterations_and_cron() {
    play(BACKGROUND);
}

#[test]
fn panics_in_events() {
    play(EVENTS);
}

#[test]
fn panics_in_callbacks_of_blocked_clients() {
    play(BLOCKED_CLIENTS);
}

#[test]
fn panics_in_settings_info_and_scans() {
    play(OTHERS);
}
