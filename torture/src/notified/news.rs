//! What such a client makes of answers and messages.

use std::time::Instant;

use support::Reply;

use super::Notified;
use super::line::{Line, Question, What};
use super::post::{Complaint, Event, Post};
use super::wait::{Phase, Step, Wait};
use super::wire::Heard;
use crate::court::Rule;
use crate::member::{EXPECTED, KEPT, SESSION};
use crate::pauses::NOTHING_IN_A_PAUSE;
use crate::settings::{HELD_BACK, is_put_off};
use crate::token::Token;
use crate::world::World;

const DATED: Rule = "a grant that is told by message begins its lease then";
const NAMED: Rule = "a message names its wait";

impl Notified<'_> {
    pub(super) fn take_in(&mut self, heard: Heard) {
        let Heard { wire, at, reply } = heard;
        if reply == Reply::Closed {
            return self.closed(wire);
        }
        let is_push = matches!(reply, Reply::Push(_));
        if self.is_listener(wire, is_push) {
            let (Reply::Push(parts) | Reply::List(parts)) = reply else { return };
            return self.hear(&parts, at);
        }
        if is_push {
            return; // Of a connection that was left: that it listened says nothing about the present one.
        }
        if let Some(question) = self.asking.as_mut().filter(|line| line.wire.number == wire).and_then(Line::next) {
            return self.answered(&question, reply, at);
        }
        if let Some(place) = self.blocking.iter().position(|line| line.wire.number == wire) {
            // What CLIENT UNBLOCK was sent for may get one reply too many, so nothing else is sent on it.
            let mut line = self.blocking.swap_remove(place);
            if let Some(question) = line.next() {
                self.answered(&question, reply, at);
            }
        }
    }

    /// Whether what comes on this connection is what this client listens to. One that is asked on, too, has answers beside that.
    fn is_listener(&self, wire: u64, is_push: bool) -> bool {
        match (&self.listening, &self.asking) {
            (Some(listening), _) => listening.number == wire,
            (None, Some(asking)) => is_push && asking.wire.number == wire,
            (None, None) => false,
        }
    }

    fn closed(&mut self, wire: u64) {
        self.blocking.retain(|line| line.wire.number != wire);
        if self.listening.take_if(|listening| listening.number == wire).is_some() {
            self.is_deaf();
        }
        if self.asking.take_if(|line| line.wire.number == wire).is_some() {
            self.asker_is_gone();
        }
    }

    /// The connection that asks is closed: its requests are away, and its sessions over.
    pub(super) fn asker_is_gone(&mut self) {
        self.posts().for_each(Post::left);
        let again = Instant::now();
        for wait in self.waits.values_mut() {
            if wait.claim.session {
                wait.phase = Phase::Over;
                wait.next = None;
            } else if wait.is_released() {
                wait.release_is_lost = true;
                wait.next = Some((again, Step::Release));
            }
        }
        if self.alone {
            self.is_deaf();
        } else {
            self.ask_again();
        }
    }

    /// Asks again for everything that may never be told, with the same tokens.
    fn ask_again(&mut self) {
        let now = Instant::now();
        for wait in self.waits.values_mut().filter(|wait| wait.phase == Phase::InLine) {
            let gives_up = wait.is_released() || self.random.u8(..4) == 0;
            wait.next = Some((now, if gives_up { Step::Release } else { Step::Ask(0) }));
            self.world.figures.met("waits asked for again");
        }
    }

    /// What the server says to who listens.
    fn hear(&mut self, parts: &[Reply], at: Instant) {
        match parts {
            [kind, channel, Reply::Text(text)] if *kind == "smessage" => {
                let channel = usize::from(*channel == self.channels[1].as_str());
                self.message(channel, &String::from_utf8_lossy(text), at);
            }
            [kind, ..] if *kind == "ssubscribe" => {
                self.confirmed += 1;
                if self.confirmed == self.channels.len() {
                    self.listens = Some(at);
                    self.ask_again();
                }
            }
            _ => {}
        }
    }

    fn message(&mut self, channel: usize, text: &str, at: Instant) {
        let world = self.world;
        let mut words = text.splitn(5, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (event, end, database, token, key) = (word(), word(), word(), word(), word());
        let (Some(event), Some(token)) = (Event::read(event), Token::read(token.as_bytes())) else {
            return world.court.charge(NAMED, text.to_owned());
        };
        world.figures.met(event.name());
        let Some(wait) = self.waits.get_mut(&token).or_else(|| self.past.get_mut(&token)) else {
            return world.court.charge(NAMED, text.to_owned());
        };
        world.ledger.note(wait.claim.key.number, at, format!("notified  hears {text}"));
        if key != wait.claim.key.name || database != wait.claim.key.database.to_string() {
            world.court.charge(NAMED, text.to_owned());
        }
        let explained = event == Event::Lost && wait.claim.is_from_before(world);
        let post = &mut wait.posts[channel];
        let complaint = if explained { post.lost() } else { post.heard(event, at) };
        complain(world, wait, complaint);
        if wait.phase == Phase::Over {
            return;
        }
        if event == Event::Granted {
            world.figures.grants.add(1);
            let end_ms = end.parse().unwrap_or_default();
            let dated = wait.granted_by_message(world, at, end_ms);
            complain(world, wait, dated.err().map(|what| (DATED, what)));
            let granted_ms = wait.granted_at_ms(world, at, end_ms);
            if granted_ms.is_some_and(|at_ms| world.pauses.cover_ms(world.server.port_of(self.database), at_ms)) {
                complain(world, wait, Some((NOTHING_IN_A_PAUSE, text.to_owned())));
            }
            if world.settings.is_held_back(wait.begun, at) {
                complain(world, wait, Some((HELD_BACK, text.to_owned())));
            }
            wait.begin_to_hold(at, &mut self.random);
        } else if wait.is_idle() {
            wait.phase = Phase::Over;
        }
    }

    fn answered(&mut self, question: &Question, reply: Reply, at: Instant) {
        // What EXEC answers for the one command.
        let reply = match reply {
            Reply::List(mut replies) if replies.len() == 1 => replies.remove(0),
            reply => reply,
        };
        let in_order = self.alone;
        let token = question.token;
        let Some(wait) = self.waits.get_mut(&token).or_else(|| self.past.get_mut(&token)) else { return };
        if !matches!(question.what, What::Frame) {
            self.world.ledger.note(wait.claim.key.number, at, format!("notified  {token} is told {reply:?}"));
        }
        if matches!(question.what, What::Ask(_) | What::Block(_)) {
            let claim = &wait.claim;
            let finding = self.world.settings.judge(claim.lease_ms, claim.has_one_request(), &reply, question.sent, at);
            complain(self.world, wait, finding);
        }
        let has_written = matches!(reply, Reply::Int(_)) || reply == Reply::waiting();
        if has_written && self.world.pauses.cover(question.port, question.sent, at) {
            complain(self.world, wait, Some((NOTHING_IN_A_PAUSE, format!("in one it was told {reply:?}"))));
        }
        match question.what {
            What::Frame => {}
            What::Release => released(self.world, wait, question.sent, &reply, at),
            What::Block(_) => {
                if reply == 1 {
                    wait.granted_by_answer(self.world, question.sent, at, &mut self.random);
                } else if reply != Reply::Nil {
                    check_error(self.world, wait, &reply);
                }
            }
            What::Ask(channel) => {
                let waits = reply == Reply::waiting();
                let complaint = wait.posts[channel].answered(waits, in_order);
                complain(self.world, wait, complaint);
                if waits {
                    self.world.figures.met("waits for a message");
                    // Its message may have come before.
                    if wait.phase == Phase::InLine {
                        wait.plan_in_line(at, &mut self.random);
                    }
                } else if reply == 1 {
                    wait.granted_by_answer(self.world, question.sent, at, &mut self.random);
                } else if reply.is_error() && reply.code() == "NOSUBSCRIBER" {
                    self.world.figures.met("NOSUBSCRIBER");
                    // It may take a moment until this client hears that its listener is gone.
                    if self.listens.is_some_and(|since| question.sent > since) {
                        self.suspect = Some((at, token));
                    }
                } else {
                    check_error(self.world, wait, &reply);
                }
                if wait.phase == Phase::InLine && wait.is_idle() && !wait.is_released() {
                    wait.next = Some((at, Step::Release));
                }
            }
        }
    }
}

/// Takes in the answer to a release.
fn released(world: &World, wait: &mut Wait<'_>, sent: Instant, reply: &Reply, at: Instant) {
    if wait.phase == Phase::Over {
        return;
    }
    let claim = &wait.claim;
    let known = match reply {
        Reply::Int(0) => {
            if let Some((rule, what)) = claim.found_to_hold(world, sent) {
                world.charge(claim.key, rule, &what);
            }
            true
        }
        Reply::Nil => true,
        Reply::Error(_) => may_be_told(world, reply) || matches!(reply.code(), "NOTHELD" | "NOTOWNER"),
        _ => false,
    };
    let lost = *reply != 0 && !may_be_told(world, reply) && !wait.release_is_lost;
    let what = format!("{}: it was told {reply:?}", claim.token);
    if !known {
        world.charge(claim.key, EXPECTED, &what);
    } else if lost && claim.has_lease_at(world, at) {
        world.charge(claim.key, KEPT, &what);
    } else if lost && wait.phase == Phase::Holding && claim.has_session(world) {
        world.charge(claim.key, SESSION, &what);
    }
    wait.phase = Phase::Over;
}

/// Any other answer than an error that a fault explains is wrong.
fn check_error(world: &World, wait: &Wait<'_>, reply: &Reply) {
    if !may_be_told(world, reply) {
        world.charge(wait.claim.key, EXPECTED, &format!("{}: it was told {reply:?}", wait.claim.token));
    }
}

/// Errors that a fault explains.
fn may_be_told(world: &World, reply: &Reply) -> bool {
    let explained = reply.is_error() && matches!(reply.code(), "EXECABORT" | "UNBLOCKED");
    explained || world.is_refusal(reply) || is_put_off(reply)
}

fn complain(world: &World, wait: &Wait<'_>, complaint: Complaint) {
    if let Some((rule, what)) = complaint {
        world.accuse(wait.claim.key, rule, &format!("{}: {what}", wait.claim.token));
    }
}
