//! Faults of the server as a whole: stalls, pauses, files that it writes, reloads, memory that runs out, and settings
//! of the server.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use support::Reply;

use super::Faults;
use crate::end;
use crate::link::Link;

/// A pause ends when the event loop notices that, ten times a second at least.
const PAUSE_NOTICED: Duration = Duration::from_millis(110);

/// Redis 7.0 has no clock for scripts but TIME, which stops in scripts on later servers.
const SCRIPT_CLOCK: &str = "local function time() local now = redis.call('TIME') return now[1] + now[2] / 1000000 end \
                            local exists, clock = pcall(function() return os.clock end) \
                            if not exists then clock = time end";
/// How much memory may be added before it runs out, in bytes: a blocked client takes 35 KB.
const FREE_MEMORY: i64 = 400_000;
const WRITTEN: &str = "files written";

impl Faults<'_> {
    /// Mostly short; some are longer than what the module takes for a stall.
    fn stall(&mut self) -> Duration {
        if self.random.u8(..6) == 0 { self.some_ms(900..1500) } else { self.some_ms(20..500) }
    }

    pub(super) fn stop_process(&mut self) {
        let stall = self.stall();
        self.run.make_fault("SIGSTOP", &format!("SIGSTOP for {stall:?}"));
        self.servers.process.stop();
        sleep(stall);
        self.servers.process.resume();
    }

    pub(super) fn sleep(&mut self) {
        let seconds = self.stall().as_secs_f64();
        self.make("DEBUG SLEEP", seconds);
    }

    pub(super) fn slow_script(&mut self) {
        let seconds = self.stall().as_secs_f64();
        self.run.fault(&format!("a script of {seconds} s"));
        let text = format!("{SCRIPT_CLOCK} local e = clock() + {seconds} while clock() < e do end");
        let Some(mut link) = self.link() else { return };
        let reply = link.call(&[b"EVAL", text.as_bytes(), b"0"]);
        if reply == Reply::Nil {
            self.run.counters.count("slow script");
        }
        self.link = (reply != Reply::Closed).then_some(link);
    }

    pub(super) fn pause(&mut self) {
        let (line, sent) = (self.pause_line(), Instant::now());
        let reply = self.reply_to(&line);
        self.paused(&line, sent, &reply);
    }

    /// The command for a short pause, which is logged as a stall before it begins.
    pub(super) fn pause_line(&mut self) -> String {
        let length = self.some_ms(5..150);
        self.run.evidence.stalls.add_from_now(length + PAUSE_NOTICED);
        let mode = if self.random.bool() { "WRITE" } else { "ALL" };
        let line = format!("CLIENT PAUSE {} {mode}", length.as_millis());
        self.run.fault(&line);
        line
    }

    /// The server has begun to pause at some time between `sent` and now, or may have if the connection was closed.
    pub(super) fn paused(&self, line: &str, sent: Instant, reply: &Reply) {
        let ms = line.split(' ').nth(2).and_then(|ms| ms.parse().ok()).expect("a pause with its length");
        let length = Duration::from_millis(ms);
        if *reply == "OK" {
            self.run.counters.count("CLIENT PAUSE");
        }
        self.run.evidence.stalls.add(sent, Instant::now() + length + PAUSE_NOTICED);
    }

    pub(super) fn reload(&mut self) {
        self.run.evidence.changes.mark(());
        self.run.file_is_stale.store(true, Ordering::SeqCst);
        self.make("DEBUG RELOAD", "");
        self.link.iter_mut().for_each(|link| drop(end::rewrite_file(self.run, link)));
    }

    pub(super) fn change_hz(&mut self) {
        let hz = self.random.u32(self.run.settings.scenario.least_hz()..200);
        self.make("CONFIG SET hz", hz);
    }

    pub(super) fn write_file(&mut self, command: &'static str, under_way: &[&str], status: &str) {
        let run = self.run;
        run.fault(command);
        let Some(mut link) = self.link() else { return };
        let reply = if command == "BGSAVE" { link.run(command) } else { end::rewrite_file(run, &mut link) };
        // It is refused while another process writes a file, for a replica for example.
        if matches!(reply, Reply::Status(_)) {
            run.counters.count(command);
            // A closed connection shows nothing.
            let rest =
                |link: &mut Link| under_way.iter().filter_map(|name| link.number("persistence", name)).sum::<i64>();
            let is_written = run.eventually(|| rest(&mut link) == 0);
            let result = link.info("persistence", status);
            if result.as_ref().is_some_and(|result| result != "ok") || !is_written && !run.is_over() {
                let text = format!("{command}: written in time: {is_written}; {status}: {result:?}");
                run.fails("the server writes its files", text);
            } else if result.is_some() {
                run.counters.count(WRITTEN);
            }
        }
        self.link = (reply != Reply::Closed).then_some(link);
    }

    /// Leaves the server little more memory than it uses, or less, for a short while.
    pub(super) fn squeeze(&mut self) {
        let Some(mut link) = self.run.connect(0, false) else { return };
        let Some(used) = link.number("memory", "used_memory") else { return };
        let ran_out =
            |link: &mut Link| Some((link.number("stats", "evicted_keys")?, link.info("errorstats", "errorstat_OOM")));
        let before = ran_out(&mut link);
        let limit = used + self.random.i64(-FREE_MEMORY / 4..FREE_MEMORY);
        self.make("CONFIG SET maxmemory", limit);
        self.run.rest(self.some_ms(20..400));
        let after = ran_out(&mut link);
        self.aim_met(before.zip(after).is_some_and(|(before, after)| before != after));
        self.insist("CONFIG SET maxmemory 0");
    }
}
