//! The state of the model: three servers and two clients that contend for one lock.
//!
//! All times are numbers of ticks that are left or have passed, so the same situation at a later time is the same
//! state, and the model has no end of time.

pub const NODES: usize = 3;
pub const CLIENTS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub nodes: [Node; NODES],
    pub clients: [Client; CLIENTS],
    /// The faults that can still happen.
    pub left: Faults,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Faults {
    pub promotions: u8,
    pub restarts: u8,
    pub stalls: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    Master,
    /// A replica of this node.
    Replica(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub role: Role,
    /// Of a master: the number of promotions until its own.
    pub epoch: u8,
    pub lock: Option<Lock>,
    /// The rest of the recovery period.
    pub period: u8,
    /// Of a master: what it knows of each other node.
    pub links: [Link; NODES],
    pub is_stalled: bool,
    /// Of a master: the nodes without which it takes no writes, as `min-replicas-to-write` says.
    pub needs: [bool; NODES],
    /// The server continues after a stall and has not checked its replicas yet.
    pub is_stale: bool,
    /// The rest of the suspension after a stall.
    pub suspended: u8,
}

/// What a master knows of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Link {
    /// The time since the last acknowledgement. [`SILENT`] is the highest: the replica does not count.
    pub silence: u8,
    /// For how long acknowledgements can still arrive that the node sent before it stopped to be a replica.
    pub late: Option<u8>,
    /// An acknowledgement has arrived while the server stalls.
    pub is_unread: bool,
}

/// Longer than any time after which a replica does not count.
pub const SILENT: u8 = 9;

/// The value of the key, with the rest of the lease by the clock of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lock {
    pub token: Token,
    pub lease: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Token {
    /// The present token of a client.
    Of(u8),
    /// A token that no client uses any more.
    Old,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// Whether its token is in use: it has sent a request, and has neither released the lock nor counted to the end of
    /// its lease.
    pub has_token: bool,
    /// The rest of the lease by its own count: while it is above 0 the client acts as the holder.
    pub holds: u8,
}

impl Node {
    pub const LINKS: [Link; NODES] = [Link { silence: SILENT, late: None, is_unread: false }; NODES];

    pub fn replica(of: u8, lock: Option<Lock>) -> Self {
        let role = Role::Replica(of);
        Self {
            role,
            epoch: 0,
            lock,
            period: 0,
            links: Self::LINKS,
            needs: [false; NODES],
            is_stalled: false,
            is_stale: false,
            suspended: 0,
        }
    }

    pub fn is_master(&self) -> bool {
        self.role == Role::Master
    }
}

impl State {
    /// A master with two replicas, and two clients that hold nothing.
    pub fn initial(left: Faults) -> Self {
        let replica = Node::replica(0, None);
        let present = Link { silence: 0, ..Node::LINKS[0] };
        let master = Node {
            role: Role::Master,
            links: [Node::LINKS[0], present, present],
            needs: [false, true, true],
            ..replica
        };
        let client = Client { has_token: false, holds: 0 };
        Self { nodes: [master, replica, replica], clients: [client; CLIENTS], left }
    }

    pub fn holders(&self) -> usize {
        self.clients.iter().filter(|client| client.holds > 0).count()
    }

    /// The client uses another token from now on.
    pub fn retire_token(&mut self, client: usize) {
        for lock in self.nodes.iter_mut().filter_map(|node| node.lock.as_mut()) {
            if lock.token == Token::of(client) {
                lock.token = Token::Old;
            }
        }
        self.clients[client] = Client { has_token: false, holds: 0 };
    }
}

impl Token {
    pub fn of(client: usize) -> Self {
        Self::Of(if client == 0 { 0 } else { 1 })
    }
}

/// The names of the nodes and clients in a story.
pub fn node_name(node: usize) -> char {
    ['M', 'R', 'Q'][node]
}

pub fn client_name(client: usize) -> &'static str {
    ["Ann", "Bob"][client]
}
