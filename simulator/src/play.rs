//! Runs a history, and lets the checker follow what the servers do.

mod clients;
mod conditions;
mod faults;
mod rest;
mod stalls;

use std::collections::VecDeque;
use std::rc::Rc;

use redis_lock::host::{Locks, set_batch, take_slow_log, view};
use redis_lock::server::{ClientId, Keyspace, LoggedEvent, Node, Tag, Unit};

use crate::checker::{Checker, Verdict};
use crate::request::{Identity, NAMES, Request, channel_of, key_of};
use crate::step::{BATCH, CLIENTS, ExternalCommand, History, Knob, Setting, Slot, Step};
use crate::tally::Tally;
use stalls::Stalls;

/// The value of lock.rejoin-grace-ms: how long the queue entry of a disconnected waiter is kept.
const GRACE_MS: i64 = 200;

/// The value of lock.slowlog-ms in histories with short batches.
const LOGGED_MS: i64 = 100;

/// How long after a stall the server notices a change of its state that happened during the stall.
const NOTICED_MS: i64 = 1100;

/// How long the module suspends its own writes after a stall. Includes the time in which the event loop may run before
/// the module detects the stall.
const SETTLED_MS: i64 = 1500;

/// The shortest stall after which the module may suspend its own writes. The limit of the module is 1000 ms,
/// for the time between two iterations, which may be longer than the stall.
const STALL_MS: i64 = 800;

/// How long the module takes to notice that a slot has left the node.
const SLOT_CHECK_MS: i64 = 420;

/// How long a server stays a replica before it is promoted.
const ELECTION_MS: i64 = 50;

/// The interval of the server's cron.
const CRON_MS: i64 = 100;

/// The most event-loop iterations at one time. More of them mean that the loop never sleeps.
const MAX_ITERATIONS: usize = 200;

/// A history that is running.
pub struct Play {
    master: Node,
    replica: Option<Node>,
    /// A server with the keys that the AOF contains.
    shadow: Node,
    /// The replication units that the replica has not received yet.
    backlog: VecDeque<Unit>,
    clients: Vec<Client>,
    checker: Checker,
    history: History,
    /// The time since the start of the history, in milliseconds.
    time: i64,
    /// The time at which the server's cron runs next.
    cron_at: i64,
    /// The last time at which the node could not write, or at which its clock was set.
    obstructed_at: i64,
    /// The last time at which the event loop was stalled, or at which the clock was set.
    stalled_at: i64,
    unsettled_until: i64,
    noticed_at: Option<i64>,
    paused_until: i64,
    fenced: bool,
    cluster_is_down: bool,
    replica_until: Option<i64>,
    stalls: Stalls,
    /// The time at which the suspension of grants ends.
    granting_at: i64,
    /// Whether the event loop has not run since the latest stall.
    is_thawing: bool,
    last_tag: Tag,
    /// The offset of the clients' names. It grows with each command that may move a lock to another key, so that the
    /// name of the holder is not used again.
    names: Identity,
    pub tally: Tally,
    /// The events so far, if they are recorded.
    record: Option<Vec<String>>,
    trace: bool,
}

#[derive(Clone, Copy, Default)]
struct Client {
    id: Option<ClientId>,
    db: u8,
}

impl Play {
    /// Creates the servers of a history.
    pub fn new(history: &History, trace: bool) -> Self {
        Node::forget_all();
        let kind = history.kind;
        let master = Node::new::<Locks>(kind);
        let replica = (history.setting == Setting::Replicated).then(|| Node::new::<Locks>(kind));
        let shadow = Node::new::<Locks>(kind);
        replica.into_iter().chain([shadow]).for_each(Node::become_replica);
        if history.setting == Setting::Cluster {
            master.join_cluster();
        }
        let mut checker = Checker::new(kind, &Keyspace::default(), GRACE_MS);
        checker.trace = trace;
        checker.has_short_batches = history.batch < BATCH;
        let mut play = Self {
            master,
            replica,
            shadow,
            backlog: VecDeque::new(),
            clients: vec![Client::default(); usize::from(CLIENTS)],
            checker,
            history: history.clone(),
            time: 0,
            cron_at: 0,
            obstructed_at: 0,
            stalled_at: 0,
            unsettled_until: 0,
            noticed_at: None,
            paused_until: 0,
            fenced: false,
            cluster_is_down: false,
            replica_until: None,
            stalls: Stalls::new(),
            granting_at: 0,
            is_thawing: false,
            last_tag: 0,
            names: 0,
            tally: Tally::default(),
            record: None,
            trace,
        };
        play.operate(&format!("CONFIG SET {} {GRACE_MS}", Knob::RejoinGraceMs.name()));
        // With short batches more requests wait for a long time.
        let logged_ms = if play.checker.has_short_batches { LOGGED_MS } else { 0 };
        play.operate(&format!("CONFIG SET lock.slowlog-ms {logged_ms}"));
        play.operate("CONFIG SET lock.slowlog-max-len 10000");
        play.checker.log_waits_from(logged_ms);
        master.with_module(|| set_batch(history.batch));
        master.watch(|| Rc::new(view()));
        master.turn();
        master.event_log();
        master.cron(CRON_MS);
        play
    }

    /// Records the events from now on.
    #[cfg(test)]
    pub fn record(&mut self) {
        self.record = Some(Vec::new());
    }

    /// Returns the recorded events.
    #[cfg(test)]
    pub fn recorded(self) -> Vec<String> {
        self.record.unwrap_or_default()
    }

    /// Runs the whole history. Then closes all connections, and checks that the module has kept nothing.
    ///
    /// # Errors
    ///
    /// The first violation of the contract.
    pub fn run(&mut self) -> Verdict {
        let steps = self.history.steps.clone();
        for step in &steps {
            if self.trace {
                println!("{step}");
            }
            self.step(step)?;
        }
        self.come_to_rest()
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each kind of step")]
    fn step(&mut self, step: &Step) -> Verdict {
        let is_cluster = self.history.setting == Setting::Cluster;
        match step {
            // A cluster has one database.
            Step::Select { .. }
            | Step::External { command: ExternalCommand::Move(..) | ExternalCommand::SwapDb, .. }
                if is_cluster => {}
            Step::Ask { client, request, way } => self.ask(*client, request, *way),
            Step::External { client, command } => {
                self.tally.external_commands += 1;
                if command.moves_locks() {
                    self.names += NAMES;
                }
                let lines = command.lines(self.master.now_ms());
                lines.iter().for_each(|line| self.say(*client, line));
            }
            Step::Crowd { client, lock, count, lease } => self.crowd(*client, *lock, *count, *lease),
            Step::HangUp(client) => self.hang_up(*client),
            Step::CutOff { first, count } => {
                (*first..CLIENTS.min(first + count)).for_each(|client| self.hang_up(client))
            }
            Step::Kill { client, victim } => {
                let is_there = self.about(*client, *victim, |id| format!("CLIENT KILL ID {id}"));
                self.tally.closed += u64::from(is_there);
            }
            Step::Unblock { client, victim, with_error } => {
                let how = if *with_error { "ERROR" } else { "TIMEOUT" };
                self.about(*client, *victim, |id| format!("CLIENT UNBLOCK {id} {how}"));
            }
            Step::Quit(client) => self.say(*client, "QUIT"),
            Step::Subscribe { client, channel } => {
                self.say(*client, "HELLO 3");
                self.tell(*client, vec![b"SSUBSCRIBE".to_vec(), channel_of(*channel)]);
            }
            Step::Unsubscribe { client, channel } => {
                self.tell(*client, vec![b"SUNSUBSCRIBE".to_vec(), channel_of(*channel)]);
            }
            Step::Select { client, db } => {
                self.say(*client, &format!("SELECT {db}"));
                self.clients[usize::from(*client)].db = *db;
            }
            Step::Turn => return self.turn(),
            Step::Pass(ms) => return self.pass(i64::from(*ms)),
            Step::Stall { ms, change } => return self.stall(i64::from(*ms), *change),
            Step::SetClock(ms) => {
                self.tally.faults.clock_steps += 1;
                self.observe()?;
                self.master.step_clock(i64::from(*ms));
                self.checker.clock_was_set();
                // A pause ends by the wall clock.
                self.paused_until -= i64::from(*ms);
                // The module may have postponed work to a time of the clock. If the clock goes back, that time comes
                // later.
                let back = i64::from(*ms).min(0).abs();
                self.obstructed_at = self.obstructed_at.max(self.time) + 2 + back;
                self.stalled_at = self.stalled_at.max(self.time + 2);
            }
            Step::Expire(limit) => {
                self.master.expire_some(usize::from(*limit));
                return self.observe();
            }
            Step::Pause(ms) => {
                self.tally.faults.pauses += 1;
                self.paused_until = self.time + i64::from(*ms);
                self.operate(&format!("CLIENT PAUSE {ms} WRITE"));
                return self.turn();
            }
            Step::Fence(fence) => {
                self.tally.faults.fences += 1;
                self.fenced = fence.is_some();
                self.obstructed_at = self.obstructed_at.max(self.time);
                self.master.set_fence(*fence);
            }
            Step::Replicate(units) => self.replicate(usize::from(*units)),
            Step::FailOver { planned } => return self.fail_over(*planned),
            Step::Restart { has_log } => return self.restart(*has_log),
            Step::HideSettings => return self.hide_settings(),
            Step::Configure { knob, value } => return self.configure(*knob, *value),
            Step::Evict(lock) => self.master.evict(0, &key_of(*lock)),
            Step::Demote(ms) => return self.demote(i64::from(*ms)),
            Step::Together { client, requests: [one, other] } => {
                // The keys of a transaction are in one slot.
                let lock = if is_cluster { one.lock } else { other.lock };
                self.ask_all(*client, &[one.clone(), Request { lock, ..other.clone() }]);
            }
            Step::Slot { lock, fate } => return self.move_slot(*lock, *fate),
            Step::ClusterDown(is_down) => {
                if self.history.setting == Setting::Cluster {
                    self.cluster_is_down = *is_down;
                    self.obstructed_at = self.obstructed_at.max(self.time);
                    self.master.set_cluster_down(*is_down);
                }
            }
        }
        Ok(())
    }

    fn hang_up(&mut self, client: Slot) {
        if let Some(id) = self.clients[usize::from(client)].id.take() {
            self.tally.closed += 1;
            self.master.hang_up(id);
        }
    }

    /// Runs one iteration of the event loop.
    fn turn(&mut self) -> Verdict {
        self.tally.iterations += 1;
        self.master.turn();
        self.observe()?;
        let info = self.master.info();
        let find = |name: &str| info.iter().find(|(field, _)| field == name).map_or(0, |&(_, count)| count as usize);
        self.checker.check_counts(&self.stalls.suspension(self.time), find)?;
        self.checker.check_slow_log(self.master.with_module(take_slow_log))?;
        self.stalls.learn(find("recovery_ms") as i64, self.time);
        if std::mem::take(&mut self.is_thawing) { self.cron() } else { Ok(()) }
    }

    /// Lets the checker follow the new events.
    fn observe(&mut self) -> Verdict {
        let conditions = self.conditions();
        for unit in self.master.stream() {
            self.shadow.replay(&unit);
            if self.replica.is_some() {
                self.backlog.push_back(unit);
            }
        }
        self.shadow.event_log();
        let notes = self.master.event_log();
        let mut views =
            notes.iter().filter_map(|note| if let LoggedEvent::Seen(seen) = note { Some(seen) } else { None });
        self.checker.look_ahead(views.next());
        for note in &notes {
            match note {
                LoggedEvent::Seen(_) => self.checker.look_ahead(views.next()),
                note => self.record.iter_mut().for_each(|record| record.push(format!("{} {note:?}", conditions.now))),
            }
            self.checker.follow(note, &conditions)?;
        }
        self.tally.grants += std::mem::take(&mut self.checker.grants);
        self.tally.replaced += std::mem::take(&mut self.checker.replaced);
        Ok(())
    }

    /// Advances the time. The event loop runs when something is due.
    fn pass(&mut self, ms: i64) -> Verdict {
        self.observe()?;
        if self.is_thawing {
            self.turn()?;
        }
        let end = self.time + ms;
        let mut iterations = 0;
        loop {
            let now = self.master.now_ms();
            let wake = self.master.next_wake().map(|wake| wake.saturating_sub(now));
            if wake.is_some_and(|wake| wake <= 0) {
                iterations += 1;
                if iterations > MAX_ITERATIONS {
                    return Err("the loop does not come to its sleep".to_owned());
                }
                self.turn()?;
                continue;
            }
            if self.time >= end {
                return self.turn();
            }
            iterations = 0;
            let noticed = self.noticed_at.or(self.replica_until).map(|at| at - self.time);
            let next = [wake, noticed, Some(self.cron_at - self.time), Some(end - self.time)]
                .into_iter()
                .flatten()
                .min()
                .unwrap_or(0)
                .max(1);
            self.advance(next);
            self.cron()?;
        }
    }

    fn advance(&mut self, ms: i64) {
        Node::pass_us(ms * 1000);
        self.time += ms;
    }

    /// Does the periodic work of the server.
    fn cron(&mut self) -> Verdict {
        if self.cron_at <= self.time {
            self.cron_at = self.time + CRON_MS;
            self.master.cron(CRON_MS);
        }
        if self.noticed_at.take_if(|at| *at <= self.time).is_some() {
            self.master.notice();
            self.note_role();
            self.replica_until = Some(self.time + ELECTION_MS);
        }
        if self.replica_until.take_if(|at| *at <= self.time).is_some() {
            // The election is over, or the state that the server has noticed ends.
            let was_replica = self.master.is_replica();
            self.master.become_master();
            if was_replica {
                self.stalls.promote(self.time);
            }
            self.master.set_fence(None);
            self.fenced = false;
            self.obstructed_at = self.obstructed_at.max(self.time);
        }
        if self.history.setting == Setting::Cluster {
            self.master.redirect();
        }
        self.observe()
    }
}
