//! A load run, from its start to its verdict.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use crate::clients::{Client, Notified, burst_forever, observe, run_quiet_locks};
use crate::end;
use crate::evidence::probe_latency;
use crate::faults::{self, Faults};
use crate::history::HistoryFile;
use crate::keys::DATABASES;
use crate::report::missing;
use crate::run::Run;
use crate::scenario::{Scenario, Settings};
use crate::servers::{Clock, Servers, end as end_servers};
use crate::soak;

/// The time for the last replies and the checks of the end.
const ENDING: Duration = Duration::from_secs(6);
const CLIENTS: usize = 48;
const PROGRESS: Duration = Duration::from_secs(5);

type Work = fn(&Run, fastrand::Rng);

pub fn run(seconds: u64, scenario: Option<Scenario>, seed: u64, file: HistoryFile) -> Result<String, String> {
    let (begun, length) = (Instant::now(), Duration::from_secs(seconds));
    let mut random = fastrand::Rng::with_seed(seed);
    let clock = Clock::new();
    if clock.is_none() && scenario == Some(Scenario::Clock) {
        return Err("the clock of this server cannot be set: see docs/reliability.md".to_owned());
    }
    let settings = Settings::choose(scenario, clock.is_some(), &mut random);
    println!("Seed {seed}: {settings:?}");
    // Not the start of the program, which has tried a clock on a server first.
    let started = Instant::now();
    let mut servers = Servers::start(&settings, clock).map_err(|log| format!("the server does not start\n{log}"))?;
    let deadline = begun + length.saturating_sub(ENDING);
    let run = Run::new(&servers, settings, (started, deadline), file);
    println!("The server listens on port {}", servers.server().port());

    let memory = run.connect(0, false).as_mut().and_then(end::memory_of_locks).unwrap_or_default();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        for database in 0..if run.in_cluster() { DATABASES } else { 1 } {
            let (run, is_done) = (&run, &is_done);
            scope.spawn(move || probe_latency(run, database, || is_done.load(Ordering::Relaxed)));
        }
        let faults = Faults::new(&run, &mut servers, random.fork());
        thread::scope(|scope| start_all(scope, &run, faults, &mut random));
        end::count_handovers(&run);
        if run.is(Scenario::Replicas) {
            faults::compare_at_end(&run, &mut servers);
        }
        if end::check(&run, memory).is_none() && !run.is_over() {
            run.fails("the server lives", "a connection was closed at the end of the run");
        }
        is_done.store(true, Ordering::Relaxed);
    });
    let missing = missing(length, &run.settings, &run.counters);
    let crash = end_servers(servers).err().map(|what| format!("the server crashed: {what}"));
    let failures: Vec<String> = crash.into_iter().chain(run.history.failures.first().map(str::to_owned)).collect();
    match (failures.is_empty(), missing.is_empty()) {
        (true, true) => Ok(run.counters.to_string()),
        (true, false) => Err(format!("NOTHING MET: no {}; {}", missing.join(", no "), run.counters)),
        (false, _) => Err(format!("BROKEN: {}\n{}", failures.join("\n"), run.counters)),
    }
}

fn start_all<'s>(scope: &'s Scope<'s, '_>, run: &'s Run, faults: Faults<'s>, random: &mut fastrand::Rng) {
    for number in 0..CLIENTS {
        let client = Client::new(run, number, random.fork());
        scope.spawn(move || client.run());
    }
    // A message shows the end of a lease by the clock, which can be set; a listener is unsubscribed when the slot of
    // its channel moves.
    for database in 0..if run.in_cluster() || run.evidence.sets_clock { 0 } else { DATABASES } {
        let client = Notified::new(run, database, random.fork());
        scope.spawn(move || client.run());
    }
    scope.spawn(move || faults.run());
    let parts = [
        (!run.is(Scenario::Soak), faults::send_external_commands as Work),
        (!run.is(Scenario::Soak), burst_forever),
        (run.settings.scenario.keeps_its_server(), faults::change_settings),
        (true, observe),
        (run.settings.has_quiet_locks(), run_quiet_locks),
        (run.is(Scenario::Soak), soak::watch_memory),
    ];
    for (_, work) in parts.into_iter().filter(|(is_wanted, _)| *is_wanted) {
        let random = random.fork();
        scope.spawn(move || work(run, random));
    }
    scope.spawn(|| {
        while run.goes_on() {
            run.rest(PROGRESS.min(run.deadline.saturating_duration_since(Instant::now())));
            end::count_handovers(run);
            println!("  {}", run.counters);
        }
    });
}
