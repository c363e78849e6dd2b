//! One connection that goes through a proxy, which lets as many bytes pass in either direction as the test says, holds
//! the rest back, and cuts the connection when it is told to.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use super::PATIENCE;
use super::raw::RawConnection;

/// The client's end, and the proxy between it and the server. Dropping it cuts the connection.
pub struct Link {
    pub client: RawConnection,
    pub requests: Arc<Gate>,
    pub replies: Arc<Gate>,
    /// The proxy's own ends, towards the client and towards the server.
    ends: [TcpStream; 2],
}

/// One direction.
#[derive(Default)]
pub struct Gate {
    flow: Mutex<Flow>,
    changed: Condvar,
}

#[derive(Default)]
struct Flow {
    /// Bytes that have reached the proxy.
    arrived: usize,
    passed: usize,
    /// How many may pass in all.
    allowed: usize,
    is_cut: bool,
}

impl Gate {
    /// Lets this many bytes pass, counted from the beginning of the connection.
    pub fn allow(&self, bytes: usize) {
        self.flow().allowed = bytes;
        self.changed.notify_all();
    }

    pub fn open(&self) {
        self.allow(usize::MAX);
    }

    /// Returns when the proxy has so many bytes, passed or held back.
    #[track_caller]
    pub fn wait_until_arrived(&self, bytes: usize) {
        self.wait_until("the bytes arrive", |flow| flow.arrived >= bytes);
    }

    #[track_caller]
    pub fn wait_until_passed(&self, bytes: usize) {
        self.wait_until("the bytes pass", |flow| flow.passed >= bytes);
    }

    #[track_caller]
    fn wait_until(&self, what: &str, condition: impl Fn(&Flow) -> bool) {
        let waited = self.changed.wait_timeout_while(self.flow(), PATIENCE, |flow| !condition(flow));
        let result = waited.expect("a proxy that has not panicked").1;
        assert!(!result.timed_out(), "never came true: {what}");
    }

    fn flow(&self) -> MutexGuard<'_, Flow> {
        self.flow.lock().expect("a proxy that has not panicked")
    }

    fn cut(&self) {
        self.flow().is_cut = true;
        self.changed.notify_all();
    }

    /// Carries bytes until either side ends or the connection is cut.
    fn carry(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = [0; 4096];
        while let Ok(count) = from.read(&mut buffer) {
            self.flow().arrived += count;
            self.changed.notify_all();
            let mut rest = buffer.get(..count).expect("what was read");
            if rest.is_empty() || !self.pass(&mut rest, &mut to) {
                break;
            }
        }
        // Fails only where the other side is gone already.
        let _ = to.shutdown(Shutdown::Write);
    }

    fn pass(&self, rest: &mut &[u8], to: &mut TcpStream) -> bool {
        while !rest.is_empty() {
            let closed = |flow: &mut Flow| flow.passed >= flow.allowed && !flow.is_cut;
            let flow = self.changed.wait_while(self.flow(), closed).expect("a proxy that has not panicked");
            if flow.is_cut {
                return false;
            }
            let (now, later) = rest.split_at(rest.len().min(flow.allowed - flow.passed));
            drop(flow);
            if to.write_all(now).is_err() {
                return false;
            }
            *rest = later;
            self.flow().passed += now.len();
            self.changed.notify_all();
        }
        true
    }
}

impl Link {
    /// A connection through which nothing passes yet.
    #[track_caller]
    pub fn open(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let client = RawConnection::open(listener.local_addr().expect("an address").port());
        let (near, _) = listener.accept().expect("our own connection");
        let far = TcpStream::connect(("127.0.0.1", port)).expect("a server that takes connections");
        for end in [&near, &far] {
            end.set_nodelay(true).expect("a connection without delay");
        }
        let (requests, replies) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
        spawn(&requests, &near, &far);
        spawn(&replies, &far, &near);
        Self { client, requests, replies, ends: [near, far] }
    }

    /// Ends the connection on both sides; what was held back is lost.
    pub fn cut(&self) {
        self.requests.cut();
        self.replies.cut();
        for end in &self.ends {
            // Fails only where it is gone already.
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.cut();
    }
}

fn spawn(gate: &Arc<Gate>, from: &TcpStream, to: &TcpStream) {
    let gate = Arc::clone(gate);
    let clone = |stream: &TcpStream| stream.try_clone().expect("a second handle of the connection");
    let (from, to) = (clone(from), clone(to));
    thread::spawn(move || gate.carry(from, to));
}
