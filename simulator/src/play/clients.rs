//! The commands that clients send.

use redis_lock::server::{ClientId, Tag};

use super::{Client, Play};
use crate::checker::Verdict;
use crate::request::{Form, Identity, LockNumber, Request, Take, Verb, key_of};
use crate::step::{Knob, Slot, Victim, Way};

/// The first token of a crowd.
const CROWD: Identity = 10_000;

impl Play {
    /// Returns the connection of a client. Opens one if the client has none.
    fn connection(&mut self, client: Slot) -> ClientId {
        let entry = &mut self.clients[usize::from(client)];
        match entry.id.filter(|&id| self.master.has(id)) {
            Some(id) => id,
            None => {
                let id = self.master.connect();
                *entry = Client { id: Some(id), db: 0 };
                id
            }
        }
    }

    /// Sends one request: plain, in a transaction, or in a script.
    pub(super) fn ask(&mut self, client: Slot, request: &Request, way: Way) {
        match way {
            Way::Plain => self.send(client, request, false),
            Way::Transaction => self.ask_all(client, std::slice::from_ref(request)),
            Way::Script => self.send(client, request, true),
        }
    }

    /// Sends requests for shares that wait for messages. Each has its own token.
    pub(super) fn crowd(&mut self, client: Slot, lock: LockNumber, count: u8, lease: i64) {
        let take = Take::plain(Form::Share, Some(lease), Some(0), Some(0));
        for number in 0..Identity::from(count) {
            self.send(client, &Request { lock, identity: CROWD + number, verb: Verb::Take(take) }, false);
        }
    }

    /// Sends requests in one transaction.
    pub(super) fn ask_all(&mut self, client: Slot, requests: &[Request]) {
        self.say(client, "MULTI");
        requests.iter().for_each(|request| self.send(client, request, false));
        self.say(client, "EXEC");
    }

    fn send(&mut self, client: Slot, request: &Request, in_script: bool) {
        let request = &Request { identity: request.identity + self.names, ..request.clone() };
        let connection = self.connection(client);
        self.tally.requests += 1;
        let db = i32::from(self.clients[usize::from(client)].db);
        self.tally.queued += self.checker.waiting_for(db, &key_of(request.lock)) as u64;
        let tag = self.next_tag();
        match in_script {
            false => self.master.send(connection, tag, request.words()),
            true => {
                let words: Vec<String> =
                    request.words().iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
                let script = format!("return redis.call('{}')", words.join("', '"));
                self.master.send(connection, tag, vec![b"EVAL".to_vec(), script.into_bytes(), b"0".to_vec()]);
            }
        }
        self.checker.asks(tag, connection, request.clone(), in_script);
    }

    /// Sets a setting, after the server has read all earlier commands.
    pub(super) fn configure(&mut self, knob: Knob, value: u32) -> Verdict {
        self.pass(0)?;
        self.checker.configure(knob, value);
        self.stalls.configure(knob, i64::from(value), self.time);
        self.operate(&format!("CONFIG SET {} {value}", knob.name()));
        self.turn()
    }

    /// Renames CONFIG, so that the module cannot read settings.
    pub(super) fn hide_settings(&mut self) -> Verdict {
        self.stalls.hide_lag(self.time);
        self.master.hide_settings();
        Ok(())
    }

    pub(super) fn say(&mut self, client: Slot, line: &str) {
        self.tell(client, words_of(line));
    }

    pub(super) fn tell(&mut self, client: Slot, words: Vec<Vec<u8>>) {
        let connection = self.connection(client);
        let tag = self.next_tag();
        self.master.send(connection, tag, words);
    }

    /// Sends a command about another client. Returns whether that client exists.
    pub(super) fn about(&mut self, client: Slot, victim: Victim, line: impl FnOnce(ClientId) -> String) -> bool {
        let own = self.clients[usize::from(client)].id;
        let victim = match victim {
            Victim::Client(victim) => self.clients[usize::from(victim)].id,
            Victim::First => self.checker.first_waiter(0, &key_of(0)),
        };
        victim.filter(|_| victim != own).inspect(|&id| self.say(client, &line(id))).is_some()
    }

    fn next_tag(&mut self) -> Tag {
        self.last_tag += 1;
        self.last_tag
    }

    /// Sends a command on a separate connection, which is then closed.
    pub(super) fn operate(&mut self, line: &str) {
        let connection = self.master.connect();
        self.master.send(connection, 0, words_of(line));
        self.master.hang_up(connection);
    }
}

fn words_of(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}
