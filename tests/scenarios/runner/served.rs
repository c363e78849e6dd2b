//! One simulated node, and what its clients receive.

use std::collections::{BTreeMap, VecDeque};

use redis_lock::host::Locks;
use redis_lock::server::{self, ClientId, LoggedEvent, Node, ServerKind, Tag};
use support::Reply;

use super::witness::Witness;

pub struct Served {
    pub node: Node,
    has_witness: bool,
    /// Reads the trace. It has no name there.
    observer: ClientId,
    /// Replies that have reached their clients.
    inboxes: BTreeMap<ClientId, VecDeque<Reply>>,
    /// Replies that have not left the server yet.
    buffers: BTreeMap<(ClientId, Tag), VecDeque<server::Reply>>,
    /// Messages that have not left the server yet.
    messages: BTreeMap<ClientId, VecDeque<server::Reply>>,
    last_tag: Tag,
}

impl Served {
    pub fn start(kind: ServerKind, has_witness: bool) -> Self {
        let node = if has_witness { Node::new::<Witness>(kind) } else { Node::new::<Locks>(kind) };
        let (observer, inboxes, buffers) = (node.connect(), BTreeMap::new(), BTreeMap::new());
        Self { node, has_witness, observer, inboxes, buffers, messages: BTreeMap::new(), last_tag: 0 }
    }

    /// Opens a connection, which has this name in the trace.
    pub fn connect(&mut self, name: &str) -> ClientId {
        let client = self.node.connect();
        if self.has_witness {
            self.ask(client, &["WITNESS.ENTER", name]);
        }
        client
    }

    /// Sends a command, which the server reads in the next iteration of its event loop.
    pub fn send(&mut self, client: ClientId, words: Vec<Vec<u8>>) {
        self.last_tag += 1;
        self.node.send(client, self.last_tag, words);
    }

    /// Puts a reply into an inbox.
    pub fn deliver(&mut self, client: ClientId, reply: Reply) {
        self.inboxes.entry(client).or_default().push_back(reply);
    }

    /// Removes and returns the next reply that has reached a client.
    pub fn next_reply(&mut self, client: ClientId) -> Option<Reply> {
        self.inboxes.get_mut(&client)?.pop_front()
    }

    /// Returns whether a reply has reached a client.
    pub fn has_reply(&self, client: ClientId) -> bool {
        self.inboxes.get(&client).is_some_and(|inbox| !inbox.is_empty())
    }

    /// Sends a command that does not block, and returns its reply.
    fn ask(&mut self, client: ClientId, words: &[&str]) -> Reply {
        self.send(client, words.iter().map(|word| word.as_bytes().to_vec()).collect());
        self.settle();
        self.next_reply(client).expect("a reply")
    }

    /// Sends a command that does not block, on a connection that no scenario uses. Returns its reply.
    pub fn ask_as_observer(&mut self, words: &[&str]) -> Reply {
        self.ask(self.observer, words)
    }

    /// Begins to record events. Earlier events are not in the trace.
    pub fn listen(&mut self) {
        if self.has_witness {
            assert_eq!(self.ask_as_observer(&["WITNESS.LISTEN"]), "done");
        }
    }

    /// Returns the lines of the trace since the last call.
    pub fn trace(&mut self) -> Vec<String> {
        if !self.has_witness {
            return Vec::new();
        }
        self.ask_as_observer(&["WITNESS.TRACE"]).items().iter().map(Reply::string).collect()
    }

    /// Runs the event loop until no work is due.
    pub fn settle(&mut self) {
        self.node.turn();
        while self.node.next_wake().is_some_and(|wake| wake <= self.node.now_ms()) {
            self.node.turn();
        }
        for note in self.node.event_log() {
            match note {
                LoggedEvent::Replied { client, tag, reply } => {
                    self.buffers.entry((client, tag)).or_default().push_back(reply)
                }
                LoggedEvent::Sent { client, tag } => {
                    let reply = self.buffers.get_mut(&(client, tag)).and_then(VecDeque::pop_front);
                    self.inboxes.entry(client).or_default().extend(reply.as_ref().map(as_received));
                }
                LoggedEvent::Pushed { client, message } => self.messages.entry(client).or_default().push_back(message),
                LoggedEvent::PushSent { client } => {
                    let message = self.messages.get_mut(&client).and_then(VecDeque::pop_front);
                    self.inboxes.entry(client).or_default().extend(message.as_ref().map(as_received));
                }
                LoggedEvent::Closed { client } => self.deliver(client, Reply::Closed),
                _ => {}
            }
        }
    }
}

/// Returns a reply as a client of a real server receives it.
fn as_received(reply: &server::Reply) -> Reply {
    let all = |items: &[server::Reply]| items.iter().map(as_received).collect();
    match reply {
        server::Reply::Nil => Reply::Nil,
        server::Reply::Integer(number) => Reply::Int(*number),
        server::Reply::Status(text) => Reply::Status((*text).to_owned()),
        server::Reply::Error(line) => Reply::Error(line.to_string()),
        server::Reply::Bytes(bytes) => Reply::Text(bytes.to_vec()),
        server::Reply::Array(items) => Reply::List(all(items)),
        server::Reply::Push(items) => Reply::Push(all(items)),
        server::Reply::Map(pairs) => {
            Reply::Map(pairs.iter().map(|(key, value)| (as_received(key), as_received(value))).collect())
        }
    }
}
