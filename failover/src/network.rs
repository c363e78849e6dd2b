//! The network between the hosts of a scene: every connection among them goes through it, and it cuts and delays what one
//! host sends to another. Clients are outside of it and reach every host at any time.
//!
//! What is cut off is held back and goes on when the cut is healed, as TCP would send it again. A host is told by the
//! address that it connects from.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// The last part of the first host's address.
const FIRST: u8 = 10;

/// A network of hosts, which are numbered from 0 on.
#[derive(Clone)]
pub struct Network(Arc<Inner>);

/// An address of a host, as the others know it.
pub struct Gate {
    pub port: u16,
    target: Arc<AtomicU16>,
}

struct Inner {
    ways: Mutex<Ways>,
    changed: Condvar,
    connections: Mutex<Vec<Arc<Carried>>>,
}

/// What goes through a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Commands and replication, which can be slow.
    Data,
    /// The news of a cluster.
    Bus,
}

/// From which host to which nothing goes, or only after a while.
#[derive(Default)]
struct Ways {
    cut: Vec<(usize, usize)>,
    slow: Vec<(usize, usize, Duration)>,
}

/// One connection between two hosts.
struct Carried {
    hosts: [usize; 2],
    traffic: Traffic,
    ends: [TcpStream; 2],
    severed: AtomicBool,
}

/// Bytes, or the end of them, and when they are due.
type Parcel = (Instant, Option<Vec<u8>>);

/// The address from which a host has to connect.
pub fn address_of(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, FIRST + u8::try_from(host).expect("few hosts"))
}

fn host_of(address: SocketAddr) -> Option<usize> {
    let IpAddr::V4(address) = address.ip() else { return None };
    address.octets()[3].checked_sub(FIRST).map(usize::from)
}

impl Network {
    pub fn new() -> Self {
        Self(Arc::new(Inner { ways: Mutex::default(), changed: Condvar::new(), connections: Mutex::default() }))
    }

    /// Opens an address of a host, which leads nowhere until [`Gate::leads_to`] says where.
    pub fn open_gate(&self, host: usize, traffic: Traffic) -> Gate {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let target = Arc::new(AtomicU16::new(0));
        let (inner, to) = (Arc::clone(&self.0), Arc::clone(&target));
        // It ends with the process, as scenes do.
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let (inner, to) = (Arc::clone(&inner), Arc::clone(&to));
                thread::spawn(move || inner.connect(near, host, traffic, &to));
            }
        });
        Gate { port, target }
    }

    /// From now on nothing of what `from` sends reaches `to`.
    pub fn cut(&self, from: usize, to: usize) {
        self.0.ways().cut.push((from, to));
    }

    /// From now on data that `from` sends to `to` takes so long.
    pub fn slow(&self, from: usize, to: usize, delay: Duration) {
        self.0.ways().slow.push((from, to, delay));
    }

    /// Ends all cuts and delays.
    pub fn heal(&self) {
        *self.0.ways() = Ways::default();
        self.0.changed.notify_all();
    }

    /// Ends all connections of a host; what is under way is lost.
    pub fn sever(&self, host: usize) {
        for carried in self.0.connections().iter().filter(|carried| carried.hosts.contains(&host)) {
            carried.sever();
        }
        self.0.changed.notify_all();
    }
}

impl Gate {
    pub fn leads_to(&self, port: u16) {
        self.target.store(port, Ordering::Relaxed);
    }
}

impl Inner {
    fn ways(&self) -> MutexGuard<'_, Ways> {
        self.ways.lock().expect("a network that has not panicked")
    }

    fn connections(&self) -> MutexGuard<'_, Vec<Arc<Carried>>> {
        self.connections.lock().expect("a network that has not panicked")
    }

    /// Makes a connection as soon as both hosts hear each other.
    fn connect(self: Arc<Self>, near: TcpStream, host: usize, traffic: Traffic, target: &AtomicU16) {
        let Ok(peer) = near.peer_addr() else { return };
        // Who is no host, a test's own client for one, is never cut off.
        let from = host_of(peer).unwrap_or(usize::MAX);
        let shut = |ways: &mut Ways| ways.cut.contains(&(from, host)) || ways.cut.contains(&(host, from));
        drop(self.changed.wait_while(self.ways(), shut).expect("a network that has not panicked"));
        let Ok(far) = TcpStream::connect(("127.0.0.1", target.load(Ordering::Relaxed))) else { return };
        for end in [&near, &far] {
            end.set_nodelay(true).expect("a connection without delay");
        }
        let (ends, severed) = ([near, far], AtomicBool::new(false));
        let carried = Arc::new(Carried { hosts: [from, host], traffic, ends, severed });
        let mut connections = self.connections();
        connections.retain(|other| Arc::strong_count(other) > 1);
        connections.push(Arc::clone(&carried));
        drop(connections);
        for side in [0, 1] {
            let (parcels, arrived) = channel();
            let (inner, from) = (Arc::clone(&self), Arc::clone(&carried));
            thread::spawn(move || inner.collect(&from, side, &parcels));
            let (inner, to) = (Arc::clone(&self), Arc::clone(&carried));
            thread::spawn(move || inner.deliver(&to, side, &arrived));
        }
    }

    fn collect(&self, carried: &Carried, side: usize, parcels: &Sender<Parcel>) {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = (&carried.ends[side]).read(&mut buffer).unwrap_or(0);
            let due = Instant::now() + self.delay_of(carried, side);
            let bytes = (count > 0).then(|| buffer[..count].to_vec());
            if parcels.send((due, bytes)).is_err() || count == 0 {
                return;
            }
        }
    }

    fn delay_of(&self, carried: &Carried, side: usize) -> Duration {
        let way = (carried.hosts[side], carried.hosts[1 - side]);
        let slow = self.ways().slow.iter().find(|&&(from, to, _)| (from, to) == way).map(|&(_, _, delay)| delay);
        slow.filter(|_| carried.traffic == Traffic::Data).unwrap_or_default()
    }

    fn deliver(&self, carried: &Carried, side: usize, parcels: &Receiver<Parcel>) {
        let other = 1 - side;
        let way = (carried.hosts[side], carried.hosts[other]);
        while let Ok((due, bytes)) = parcels.recv() {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let held = |ways: &mut Ways| ways.cut.contains(&way) && !carried.severed.load(Ordering::Relaxed);
            drop(self.changed.wait_while(self.ways(), held).expect("a network that has not panicked"));
            if carried.severed.load(Ordering::Relaxed) {
                return;
            }
            let Some(bytes) = bytes else {
                // Fails only where the other side is gone already.
                let _ = carried.ends[other].shutdown(Shutdown::Write);
                return;
            };
            if (&carried.ends[other]).write_all(&bytes).is_err() {
                let _ = carried.ends[side].shutdown(Shutdown::Read);
                return;
            }
        }
    }
}

impl Carried {
    fn sever(&self) {
        self.severed.store(true, Ordering::Relaxed);
        for end in &self.ends {
            // Fails only where it is gone already.
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::happens_within;

    /// A host that answers each byte with itself, and a connection to it from "another host", which has no address of its
    /// own to connect from: it is the number of the loopback address.
    fn echo(network: &Network) -> TcpStream {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let gate = network.open_gate(0, Traffic::Data);
        gate.leads_to(listener.local_addr().expect("an address").port());
        thread::spawn(move || {
            let (mut server, _) = listener.accept().expect("the network");
            let mut byte = [0];
            while server.read(&mut byte).is_ok_and(|count| count > 0) && server.write_all(&byte).is_ok() {}
        });
        let client = TcpStream::connect(("127.0.0.1", gate.port)).expect("a gate");
        client.set_nonblocking(true).expect("a connection that can be asked");
        client
    }

    fn is_answered(mut client: &TcpStream, within: Duration) -> bool {
        client.write_all(b"x").expect("an open connection");
        comes(client, within)
    }

    fn comes(mut client: &TcpStream, within: Duration) -> bool {
        happens_within(within, || client.read(&mut [0]).is_ok_and(|count| count == 1))
    }

    const SOON: Duration = Duration::from_secs(5);
    const SHORT: Duration = Duration::from_millis(100);

    #[test]
    fn what_is_cut_off_comes_when_the_cut_is_healed() {
        for way in [(usize::MAX, 0), (0, usize::MAX)] {
            let network = Network::new();
            let client = echo(&network);
            assert!(is_answered(&client, SOON));
            network.cut(way.0, way.1);
            assert!(!is_answered(&client, SHORT));
            network.heal();
            assert!(comes(&client, SOON));
        }
    }

    #[test]
    fn what_is_slow_comes_late_and_is_lost_when_the_host_is_severed() {
        let network = Network::new();
        let client = echo(&network);
        assert!(is_answered(&client, SOON));
        network.slow(0, usize::MAX, 3 * SHORT);
        assert!(!is_answered(&client, SHORT));
        assert!(comes(&client, SOON));
        assert!(!is_answered(&client, SHORT));
        network.sever(0);
        assert!(!comes(&client, 4 * SHORT));
    }
}
