//! A network between hosts that can be cut and delayed in each direction. Every connection between two hosts goes
//! through a proxy; clients are outside of the network and reach each host directly.
//!
//! Bytes that are cut off are kept and delivered after the cut, as TCP would send them again. The address that a
//! connection comes from shows its host.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use super::proxy::{Gate, Road};

/// The last part of the address of the first host.
const FIRST: u8 = 10;

/// A network of hosts, which are numbered from 0.
#[derive(Clone, Default)]
pub struct Network(Arc<Inner>);

/// A port of a host, as the others know it.
pub struct Address {
    pub port: u16,
    target: Arc<AtomicU16>,
}

/// The traffic of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Commands and replication, which can be slow.
    Data,
    /// The cluster bus.
    Bus,
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// From which host to which nothing passes.
    cut: Vec<(usize, usize)>,
    slow: Vec<(usize, usize, Duration)>,
    connections: Vec<Carried>,
}

/// A connection from one host to another.
struct Carried {
    from: usize,
    to: usize,
    road: Road,
}

impl State {
    /// Opens the directions of a connection that are not cut.
    fn apply(&self, carried: &Carried) {
        let ways =
            [(carried.from, carried.to, &carried.road.requests), (carried.to, carried.from, &carried.road.replies)];
        for (from, to, gate) in ways {
            if self.cut.contains(&(from, to)) { gate.fall_silent() } else { gate.open() }
        }
    }
}

/// The address from which a host has to connect.
pub fn address_of(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, FIRST + u8::try_from(host).expect("few hosts"))
}

/// The host with this address; for an address of no host a number that no host has.
fn host_of(address: SocketAddr) -> usize {
    let IpAddr::V4(address) = address.ip() else { return usize::MAX };
    address.octets()[3].checked_sub(FIRST).map_or(usize::MAX, usize::from)
}

impl Network {
    /// Opens an address of a host, which leads nowhere until [`Address::leads_to`] is called.
    ///
    /// # Panics
    ///
    /// If there is no free port.
    pub fn open(&self, host: usize, traffic: Traffic) -> Address {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let target = Arc::new(AtomicU16::new(0));
        let (network, to) = (self.clone(), Arc::clone(&target));
        // It ends with the process.
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let (network, to) = (network.clone(), Arc::clone(&to));
                thread::spawn(move || network.connect(near, host, traffic, &to));
            }
        });
        Address { port, target }
    }

    /// From now on nothing that `from` sends reaches `to`.
    pub fn cut(&self, from: usize, to: usize) {
        self.change(|state| state.cut.push((from, to)));
    }

    /// From now on data from `from` to `to` arrives later by `delay`.
    pub fn slow(&self, from: usize, to: usize, delay: Duration) {
        self.change(|state| state.slow.push((from, to, delay)));
    }

    /// Ends all cuts and delays.
    pub fn heal(&self) {
        self.change(|state| (state.cut, state.slow) = Default::default());
    }

    /// Ends all connections of a host. Bytes under way are lost.
    pub fn sever(&self, host: usize) {
        self.change(|state| state.connections.retain(|carried| carried.from != host && carried.to != host));
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        state.connections.iter().for_each(|carried| state.apply(carried));
        self.0.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("a network that has not panicked")
    }

    /// Makes a connection as soon as both hosts reach each other.
    fn connect(&self, near: TcpStream, to: usize, traffic: Traffic, target: &AtomicU16) {
        let Ok(from) = near.peer_addr().map(host_of) else { return };
        let is_cut = |state: &mut State| state.cut.contains(&(from, to)) || state.cut.contains(&(to, from));
        drop(self.0.changed.wait_while(self.state(), is_cut).expect("a network that has not panicked"));
        let Ok(far) = TcpStream::connect(("127.0.0.1", target.load(Ordering::Relaxed))) else { return };
        let network = self.clone();
        let carry = move |is_request: bool, gate: &Gate, source: TcpStream, sink: TcpStream| {
            let way = if is_request { (from, to) } else { (to, from) };
            network.carry(way, traffic, gate, source, sink);
        };
        let Ok(road) = Road::between(near, far, carry) else { return };
        let mut state = self.state();
        state.connections.retain(|carried| carried.road.is_carried());
        let carried = Carried { from, to, road };
        state.apply(&carried);
        state.connections.push(carried);
    }

    /// Carries one direction, each piece by its delay later than it came.
    fn carry(&self, way: (usize, usize), traffic: Traffic, gate: &Gate, mut source: TcpStream, sink: TcpStream) {
        let (pieces, arrived) = channel();
        let network = self.clone();
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(count @ 1..) = source.read(&mut buffer) {
                let due = Instant::now() + network.delay(way, traffic);
                if pieces.send((due, buffer[..count].to_vec())).is_err() {
                    return;
                }
            }
        });
        let due = |(due, piece): (Instant, Vec<u8>)| {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            piece
        };
        gate.carry(arrived.into_iter().map(due), sink);
    }

    fn delay(&self, way: (usize, usize), traffic: Traffic) -> Duration {
        let state = self.state();
        let slow = state.slow.iter().find(|(from, to, _)| (*from, *to) == way && traffic == Traffic::Data);
        slow.map_or(Duration::ZERO, |(_, _, delay)| *delay)
    }
}

impl Address {
    pub fn leads_to(&self, port: u16) {
        self.target.store(port, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::happens_within;

    const SOON: Duration = Duration::from_secs(5);
    const SHORT: Duration = Duration::from_millis(100);
    /// The client of the tests, which has no address of a host.
    const CLIENT: usize = usize::MAX;

    /// A host that sends each byte back, and a connection to it.
    fn echo(network: &Network) -> TcpStream {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = network.open(0, Traffic::Data);
        address.leads_to(listener.local_addr().expect("an address").port());
        thread::spawn(move || {
            let (mut server, _) = listener.accept().expect("the network");
            let mut byte = [0];
            while server.read(&mut byte).is_ok_and(|count| count > 0) && server.write_all(&byte).is_ok() {}
        });
        let client = TcpStream::connect(("127.0.0.1", address.port)).expect("an address");
        client.set_nonblocking(true).expect("a connection that can be polled");
        client
    }

    fn is_answered(mut client: &TcpStream, within: Duration) -> bool {
        client.write_all(b"x").expect("an open connection");
        comes(client, within)
    }

    fn comes(mut client: &TcpStream, within: Duration) -> bool {
        happens_within(within, || client.read(&mut [0]).is_ok_and(|count| count == 1))
    }

    #[test]
    fn bytes_that_are_cut_off_come_after_the_cut() {
        for way in [(CLIENT, 0), (0, CLIENT)] {
            let network = Network::default();
            let client = echo(&network);
            assert!(is_answered(&client, SOON));
            network.cut(way.0, way.1);
            assert!(!is_answered(&client, SHORT));
            network.heal();
            assert!(comes(&client, SOON));
        }
    }

    #[test]
    fn slow_bytes_come_late_and_are_lost_with_the_host() {
        let network = Network::default();
        let client = echo(&network);
        assert!(is_answered(&client, SOON));
        network.slow(0, CLIENT, 3 * SHORT);
        assert!(!is_answered(&client, SHORT));
        assert!(comes(&client, SOON));
        assert!(!is_answered(&client, SHORT));
        network.sever(0);
        assert!(!comes(&client, 4 * SHORT));
    }
}
