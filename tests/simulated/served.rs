//! One simulated node, and what its clients receive.

use std::collections::{BTreeMap, VecDeque};

use redis_lock::server::{ClientId, LoggedEvent, Node, Reply, ServerKind, Tag};

use super::witness::Witness;

pub struct Served {
    pub node: Node,
    /// Reads the trace. It has no name there.
    observer: ClientId,
    /// Replies that have reached their clients.
    inboxes: BTreeMap<ClientId, VecDeque<String>>,
    /// Replies that have not left the server yet.
    buffers: BTreeMap<(ClientId, Tag), VecDeque<Reply>>,
    /// Messages that have not left the server yet.
    messages: BTreeMap<ClientId, VecDeque<Reply>>,
    last_tag: Tag,
}

impl Served {
    pub fn start(kind: ServerKind) -> Self {
        let node = Node::new::<Witness>(kind);
        let (observer, inboxes, buffers) = (node.connect(), BTreeMap::new(), BTreeMap::new());
        Self { node, observer, inboxes, buffers, messages: BTreeMap::new(), last_tag: 0 }
    }

    /// Sends a command, which the server reads in the next iteration of its event loop.
    pub fn send(&mut self, client: ClientId, words: &[&str]) {
        self.last_tag += 1;
        self.node.send(client, self.last_tag, words.iter().map(|word| word.as_bytes().to_vec()).collect());
    }

    /// Puts a reply into an inbox.
    pub fn tell(&mut self, client: ClientId, reply: &str) {
        self.inboxes.entry(client).or_default().push_back(reply.to_owned());
    }

    /// Removes and returns the next reply that has reached a client.
    pub fn next_reply(&mut self, client: ClientId) -> Option<String> {
        self.inboxes.get_mut(&client)?.pop_front()
    }

    /// Sends a command that does not block, and returns its reply.
    pub fn ask(&mut self, client: ClientId, words: &[&str]) -> String {
        self.send(client, words);
        self.settle();
        self.next_reply(client).expect("a reply")
    }

    /// Begins to record events. Earlier events are not in the trace.
    pub fn listen(&mut self) {
        assert_eq!(self.ask(self.observer, &["WITNESS.LISTEN"]), "done");
    }

    /// Returns the lines of the trace since the last call.
    pub fn trace(&mut self) -> Vec<String> {
        let traced = self.ask(self.observer, &["WITNESS.TRACE"]);
        let lines = traced.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&traced);
        lines.split(", ").filter(|line| !line.is_empty()).map(str::to_owned).collect()
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
                    self.inboxes.entry(client).or_default().extend(reply.as_ref().map(in_words));
                }
                LoggedEvent::Pushed { client, message } => self.messages.entry(client).or_default().push_back(message),
                LoggedEvent::PushSent { client } => {
                    let message = self.messages.get_mut(&client).and_then(VecDeque::pop_front);
                    self.inboxes.entry(client).or_default().extend(message.as_ref().map(in_words));
                }
                LoggedEvent::Closed { client } => self.tell(client, "(closed)"),
                _ => {}
            }
        }
    }
}

/// Formats a reply like the replies of real servers.
fn in_words(reply: &Reply) -> String {
    let list = |items: Vec<String>| items.join(", ");
    match reply {
        Reply::Nil => "nil".to_owned(),
        Reply::Integer(number) => number.to_string(),
        Reply::Status(text) => (*text).to_owned(),
        Reply::Error(line) => format!("-{line}"),
        Reply::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Array(items) => format!("[{}]", list(items.iter().map(in_words).collect())),
        Reply::Push(items) => format!(">[{}]", list(items.iter().map(in_words).collect())),
        Reply::Map(pairs) => {
            let pair = |(key, value): &(Reply, Reply)| format!("{}: {}", in_words(key), in_words(value));
            format!("{{{}}}", list(pairs.iter().map(pair).collect()))
        }
    }
}
