//! One connection through a proxy, which lets bytes pass in either direction or holds them back, and cuts the connection.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

/// The proxy between a client and the server. Dropping it cuts the connection.
pub struct Road {
    pub requests: Arc<Gate>,
    pub replies: Arc<Gate>,
    /// The proxy's own ends, towards the client and towards the server; none after a reset.
    ends: Mutex<Vec<TcpStream>>,
}

/// One direction.
#[derive(Default)]
pub struct Gate {
    flow: Mutex<Flow>,
    changed: Condvar,
}

#[derive(Default)]
struct Flow {
    is_open: bool,
    /// The end of the stream does not pass either.
    is_silent: bool,
    is_cut: bool,
}

impl Gate {
    pub fn open(&self) {
        let mut flow = self.flow();
        (flow.is_open, flow.is_silent) = (true, false);
        self.changed.notify_all();
    }

    /// Lets nothing more pass, as if the wire were cut: the other side does not learn of the end of the stream either.
    pub fn fall_silent(&self) {
        let mut flow = self.flow();
        (flow.is_open, flow.is_silent) = (false, true);
    }

    fn flow(&self) -> MutexGuard<'_, Flow> {
        self.flow.lock().expect("a proxy that has not panicked")
    }

    fn cut(&self) {
        self.flow().is_cut = true;
        self.changed.notify_all();
    }

    /// Carries bytes until either side ends or the connection is cut.
    fn carry_from(&self, mut from: TcpStream, to: TcpStream) {
        let mut buffer = [0; 4096];
        let read = move || {
            let count = from.read(&mut buffer).ok()?;
            (count > 0).then(|| buffer.get(..count).expect("what was read").to_vec())
        };
        self.carry(std::iter::from_fn(read), to);
    }

    /// Carries pieces of bytes until their end, and then the end of the stream.
    pub(super) fn carry(&self, pieces: impl Iterator<Item = Vec<u8>>, mut to: TcpStream) {
        for piece in pieces {
            let closed = |flow: &mut Flow| !flow.is_open && !flow.is_cut;
            let flow = self.changed.wait_while(self.flow(), closed).expect("a proxy that has not panicked");
            if flow.is_cut {
                break;
            }
            drop(flow);
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        let silent = |flow: &mut Flow| flow.is_silent && !flow.is_cut;
        let flow = self.changed.wait_while(self.flow(), silent).expect("a proxy that has not panicked");
        if !flow.is_cut {
            // Fails only where the other side is gone already.
            let _ = to.shutdown(Shutdown::Write);
        }
    }
}

impl Road {
    /// A road to the server through which nothing passes yet, and the client that `connect` has made at its beginning.
    ///
    /// # Errors
    ///
    /// The server does not listen, or there are too many connections.
    pub fn open<C>(port: u16, connect: impl FnOnce(u16) -> C) -> io::Result<(C, Self)> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let client = connect(listener.local_addr()?.port());
        let (near, _) = listener.accept()?;
        let far = TcpStream::connect(("127.0.0.1", port))?;
        Ok((client, Self::between(near, far, |_, gate, from, to| gate.carry_from(from, to))?))
    }

    /// A road between two connections. `carry` carries the bytes of one direction, requests or replies: true or false.
    ///
    /// # Errors
    ///
    /// The connections are closed, or there are too many.
    pub(super) fn between(
        near: TcpStream,
        far: TcpStream,
        carry: impl Fn(bool, &Gate, TcpStream, TcpStream) + Clone + Send + 'static,
    ) -> io::Result<Self> {
        for end in [&near, &far] {
            end.set_nodelay(true)?;
        }
        let (requests, replies) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
        for (is_request, gate, from, to) in [(true, &requests, &near, &far), (false, &replies, &far, &near)] {
            let (gate, from, to, carry) = (Arc::clone(gate), from.try_clone()?, to.try_clone()?, carry.clone());
            thread::spawn(move || carry(is_request, &gate, from, to));
        }
        Ok(Self { requests, replies, ends: Mutex::new(vec![near, far]) })
    }

    /// Whether both directions are still carried.
    pub(super) fn is_carried(&self) -> bool {
        Arc::strong_count(&self.requests) > 1 && Arc::strong_count(&self.replies) > 1
    }

    /// Lets everything pass.
    pub fn let_pass(&self) {
        self.requests.open();
        self.replies.open();
    }

    /// Ends the connection on both sides; what was held back is lost.
    pub fn cut(&self) {
        self.requests.cut();
        self.replies.cut();
        for end in self.ends().iter() {
            // Fails only where it is gone already.
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    /// Ends the connection with a reset on both sides, as soon as nobody reads from it any more.
    pub fn reset(&self) {
        self.requests.cut();
        self.replies.cut();
        for end in self.ends().drain(..) {
            // Both fail only where it is gone already. Who reads from it is woken; nothing is sent.
            let _ = SockRef::from(&end).set_linger(Some(Duration::ZERO));
            let _ = end.shutdown(Shutdown::Read);
        }
    }

    fn ends(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.ends.lock().expect("a proxy that has not panicked")
    }
}

impl Drop for Road {
    fn drop(&mut self) {
        self.cut();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PATIENCE;

    fn pair() -> (TcpStream, Road, TcpStream) {
        let server = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = server.local_addr().expect("an address").port();
        let connect = |port| TcpStream::connect(("127.0.0.1", port)).expect("the proxy");
        let (client, road) = Road::open(port, connect).expect("a road");
        let (end, _) = server.accept().expect("the proxy's connection");
        for end in [&client, &end] {
            end.set_read_timeout(Some(PATIENCE)).expect("a connection with a time-out");
        }
        (client, road, end)
    }

    fn send(from: &mut TcpStream, to: &mut TcpStream) {
        let mut byte = [0];
        from.write_all(b"x").expect("an open connection");
        to.read_exact(&mut byte).expect("the byte");
    }

    #[test]
    fn a_road_that_is_silent_keeps_the_end_of_the_stream_to_itself() {
        let (mut client, road, mut server) = pair();
        road.let_pass();
        send(&mut client, &mut server);
        road.requests.fall_silent();
        drop(client);
        server.set_read_timeout(Some(Duration::from_millis(50))).expect("a connection with a time-out");
        assert!(server.read(&mut [0]).is_err(), "neither a byte nor an end");
        server.set_read_timeout(Some(PATIENCE)).expect("a connection with a time-out");
        road.let_pass();
        assert_eq!(server.read(&mut [0]).expect("the end"), 0);
    }

    #[test]
    fn both_sides_see_a_reset() {
        let (mut client, road, mut server) = pair();
        road.let_pass();
        send(&mut client, &mut server);
        road.reset();
        for end in [&mut client, &mut server] {
            let result = end.read(&mut [0]).map_err(|error| error.kind());
            assert_eq!(result, Err(io::ErrorKind::ConnectionReset));
        }
    }
}
