//! Faults that meet the server as a whole.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use support::Reply;

use super::Disturber;
use crate::ending;
use crate::link::Link;

/// A pause ends when the server's loop looks at it, ten times a second at least.
const PAUSE_NOTICED: Duration = Duration::from_millis(110);

/// Redis 7.0 has no clock for scripts but TIME, which stands still in scripts on later servers.
const SCRIPT_CLOCK: &str = "local function time() local now = redis.call('TIME') return now[1] + now[2] / 1000000 end \
                            local exists, clock = pcall(function() return os.clock end) \
                            if not exists then clock = time end";

impl Disturber<'_> {
    /// Mostly short; some are longer than what the module takes for a sign that the world may have changed.
    fn stall_ms(&mut self) -> u64 {
        if self.random.u8(..6) == 0 { self.random.u64(900..1500) } else { self.random.u64(20..500) }
    }

    pub(super) fn stop_process(&mut self) {
        let stall = Duration::from_millis(self.stall_ms());
        self.world.fault("SIGSTOP", &format!("SIGSTOP for {stall:?}"));
        self.scene.process().stop();
        sleep(stall);
        self.scene.process().resume();
    }

    pub(super) fn sleep(&mut self) {
        let seconds = Duration::from_millis(self.stall_ms()).as_secs_f64();
        self.make("DEBUG SLEEP", &format!("DEBUG SLEEP {seconds}"));
    }

    pub(super) fn slow_script(&mut self) {
        let seconds = Duration::from_millis(self.stall_ms()).as_secs_f64();
        self.world.note_fault(&format!("a script of {seconds} s"));
        let text = format!("{SCRIPT_CLOCK} local e = clock() + {seconds} while clock() < e do end");
        let Some(mut link) = self.link() else { return };
        if link.send_words(&[b"EVAL", text.as_bytes(), b"0"]).is_none() {
            return;
        }
        if let Some(reply) = link.receive(Duration::from_secs(20)) {
            if reply == Reply::Nil {
                self.world.figures.fault("slow script");
            }
            self.link = Some(link);
        }
    }

    pub(super) fn kill_all(&mut self) {
        self.make("CLIENT KILL TYPE normal", "CLIENT KILL TYPE normal");
    }

    pub(super) fn pause(&mut self) {
        let line = self.pause_line();
        let Some(mut link) = self.link() else { return };
        let sent = Instant::now();
        let reply = link.run(&line);
        self.paused(&link, &line, sent, &reply);
        self.link = (reply != Reply::Closed).then_some(link);
    }

    /// A pause that is short; it is noted as bad weather before it begins.
    pub(super) fn pause_line(&mut self) -> String {
        let ms = self.random.u64(5..150);
        let now = Instant::now();
        self.world.weather.was_bad(now, now + Duration::from_millis(ms) + PAUSE_NOTICED);
        let mode = if self.random.bool() { "WRITE" } else { "ALL" };
        let line = format!("CLIENT PAUSE {ms} {mode}");
        self.world.note_fault(&line);
        line
    }

    /// The server has begun to pause at some time between `sent` and now, or may have where the connection was closed.
    pub(super) fn paused(&self, link: &Link, line: &str, sent: Instant, reply: &Reply) {
        let ms = line.split(' ').nth(2).and_then(|ms| ms.parse().ok()).expect("a pause with its length");
        let length = Duration::from_millis(ms);
        if *reply == "OK" {
            self.world.figures.fault("CLIENT PAUSE");
            self.world.pauses.add(link.port(), sent, length);
        }
        self.world.weather.was_bad(sent, Instant::now() + length + PAUSE_NOTICED);
    }

    pub(super) fn reload(&mut self) {
        self.world.server.begins_anew();
        self.world.file_is_stale.store(true, Ordering::SeqCst);
        self.make("DEBUG RELOAD", "DEBUG RELOAD");
        if let Some(link) = &mut self.link {
            ending::rewrite_file(self.world, link);
        }
    }

    /// From now on those who wait with other libraries are woken, or no more.
    pub(super) fn change_waking(&mut self) {
        let to = if self.random.bool() { "yes" } else { "no" };
        self.make("CONFIG SET lock.wake-foreign", &format!("CONFIG SET lock.wake-foreign {to}"));
    }

    pub(super) fn change_hz(&mut self) {
        let hz = self.random.u32(self.ground.kind().least_hz()..200);
        self.make("CONFIG SET hz", &format!("CONFIG SET hz {hz}"));
    }
}
