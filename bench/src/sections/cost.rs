//! What one contended acquisition costs: how often the client waits for the network, and what the server does.

use std::thread::sleep;
use std::time::Duration;

use support::{Client, Server};

use crate::engine::contention::{Contention, Return};
use crate::engine::ground::{Ground, LEASE, gather};
use crate::engine::{Action, Event, Locks, Orders, Workload};
use crate::progress;
use crate::protocols::{CONTENDERS, Protocol};
use crate::section::{Bar, Effort, Plot, Row, Section, Table};

const CLIENTS: usize = 10;
const HOLD: Duration = Duration::from_millis(1);
/// Grants before anything is counted.
const WARM_UP: u64 = 20;
/// For as many grants as are to be counted.
const AT_MOST: Duration = Duration::from_secs(20);
/// What has been sent is done in the server after this long.
const UNDER_WAY: Duration = Duration::from_millis(50);

/// Per acquisition.
struct Cost {
    round_trips: f64,
    commands: f64,
    /// Per release.
    release_commands: f64,
}

pub fn measure(effort: Effort) -> Section {
    let grants = effort.choose(500, 30);
    let costs = progress::each("cost", &CONTENDERS, |protocol| cost(*protocol, grants));
    Section {
        name: "cost",
        title: "What one contended acquisition costs",
        method: method(grants),
        table: table(&costs),
        bars: costs.first().map(bars).unwrap_or_default(),
        plot: Some(Plot::Bars { column: 1, logarithmic: true }),
    }
}

fn method(grants: u64) -> String {
    format!(
        "{CLIENTS} clients after one lock, which each holds for {} ms; whoever has released asks again only when the next \
         one holds the lock, so that each of the {grants} acquisitions is contended. A round trip is a write to the server \
         whose answer the client waits for, before it has the lock. Commands are those that the server counts in INFO \
         commandstats, with those that scripts run; the commands of a release, measured alone, are taken off and shown \
         beside.",
        HOLD.as_millis()
    )
}

fn cost(protocol: &dyn Protocol, grants: u64) -> Cost {
    let server = Ground::for_connections(CLIENTS * protocol.lines());
    let mut observer = server.client();
    let release_commands = commands_of_a_release(&server, protocol, &mut observer);
    let mut engine = gather(&server, protocol, CLIENTS, Locks::One, LEASE);
    let mut contention = Contention::new(CLIENTS, HOLD, Return::BehindTheNext);
    engine.all(Action::Acquire);
    contention.count_to(WARM_UP);
    engine.run(&mut contention, AT_MOST);
    let (tally, commands) = (engine.tally(), commands_now(&mut observer));
    contention.count_to(grants);
    engine.run(&mut contention, AT_MOST);
    let (last_tally, last_commands) = (engine.tally(), commands_now(&mut observer));
    let acquisitions = (last_tally.acquisitions - tally.acquisitions) as f64;
    Cost {
        round_trips: (last_tally.round_trips - tally.round_trips) as f64 / acquisitions,
        commands: (last_commands - commands) as f64 / acquisitions - release_commands,
        release_commands,
    }
}

/// All that the server has done so far, but for INFO, once everything that is under way has arrived.
fn commands_now(observer: &mut Client) -> u64 {
    sleep(UNDER_WAY);
    let text = observer.run("INFO commandstats").string();
    text.lines().filter(|line| !line.starts_with("cmdstat_info:")).filter_map(calls).sum()
}

/// The number of calls in a line like `cmdstat_get:calls=3,usec=7,...`.
fn calls(line: &str) -> Option<u64> {
    let (_, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
    rest.split(',').next()?.parse().ok()
}

fn commands_of_a_release(server: &Server, protocol: &dyn Protocol, observer: &mut Client) -> f64 {
    let mut engine = gather(server, protocol, 1, Locks::One, LEASE);
    engine.all(Action::Acquire);
    engine.run(&mut Until::of(Event::Granted), AT_MOST);
    let before = commands_now(observer);
    engine.all(Action::Release);
    engine.run(&mut Until::of(Event::Released), AT_MOST);
    (commands_now(observer) - before) as f64
}

/// Waits for one thing to happen.
struct Until {
    event: Event,
    has_happened: bool,
}

impl Until {
    fn of(event: Event) -> Self {
        Self { event, has_happened: false }
    }
}

impl Workload for Until {
    fn on(&mut self, _client: usize, event: Event, _orders: &mut Orders) {
        self.has_happened |= event == self.event;
    }

    fn is_done(&self) -> bool {
        self.has_happened
    }
}

fn table(costs: &[Cost]) -> Table {
    let headings = ["protocol", "round trips", "server commands", "server commands of a release"];
    let row = |(protocol, cost): (&&dyn Protocol, &Cost)| Row {
        label: protocol.name().to_owned(),
        cells: vec![Some(cost.round_trips), Some(cost.commands), Some(cost.release_commands)],
    };
    Table::new(headings, CONTENDERS.iter().zip(costs).map(row).collect())
}

fn bars(ours: &Cost) -> Vec<Bar> {
    vec![
        Bar::at_most("Network round trips per contended acquisition", ours.round_trips, 1.0),
        Bar::at_most("Server commands per contended acquisition", ours.commands, 1.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read() {
        assert_eq!(calls("cmdstat_client|id:calls=31,usec=7,usec_per_call=1.0"), Some(31));
        assert_eq!(calls("# Commandstats"), None);
    }
}
