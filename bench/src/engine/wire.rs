//! What one client has at hand to follow its protocol: its connections and its timer.

use std::time::Duration;

use redis::Cmd;

use super::connection::Connection;

/// One of a client's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// For commands.
    Main,
    /// For subscriptions.
    Channel,
}

/// What is to become of the client's timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    Keep,
    Set(Duration),
    Cancel,
}

/// Everything told and asked in one turn leaves in one write for each connection.
pub struct Wire<'a> {
    pub(super) command: &'a mut Cmd,
    pub(super) lines: &'a mut [Connection],
    pub(super) alarm: Alarm,
    /// Somebody waits for the answer of what was written.
    pub(super) awaits: bool,
}

impl Wire<'_> {
    /// Sends a command whose answer the client waits for.
    pub fn ask(&mut self, words: &[&[u8]]) {
        self.ask_on(Line::Main, words);
    }

    pub fn ask_on(&mut self, line: Line, words: &[&[u8]]) {
        self.awaits = true;
        self.tell_on(line, words);
    }

    /// Sends a command and goes on without its answer, which comes all the same.
    pub fn tell_on(&mut self, line: Line, words: &[&[u8]]) {
        let connection = match line {
            Line::Main => self.lines.first_mut(),
            Line::Channel => self.lines.get_mut(1),
        };
        self.command.clear();
        for word in words {
            self.command.arg(*word);
        }
        let connection = connection.expect("a protocol that has this line");
        self.command.write_packed_command(&mut connection.outgoing);
    }

    /// Sets the client's one timer.
    pub fn wake_after(&mut self, span: Duration) {
        self.alarm = Alarm::Set(span);
    }

    pub fn cancel_alarm(&mut self) {
        self.alarm = Alarm::Cancel;
    }
}
