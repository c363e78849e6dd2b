//! When all databases were flushed, whoever held what in them. Nobody who may have held a lock by then is promised anything after
//! it, but for what is answered later; and who certainly held one holds it no more.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

struct Flush {
    begun: Instant,
    /// None as long as it may yet come.
    ended: Option<Instant>,
    /// It has met every database.
    is_certain: bool,
}

/// One thread makes them, others look.
#[derive(Default)]
pub struct Flushes {
    all: Mutex<Vec<Flush>>,
    put_off: AtomicU32,
}

/// Something is under way that FLUSHALL would bring to nothing.
pub struct PutOff<'f>(&'f Flushes);

impl Drop for PutOff<'_> {
    fn drop(&mut self) {
        self.0.put_off.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Flushes {
    /// The command is about to leave.
    pub fn begin(&self) {
        self.all().push(Flush { begun: Instant::now(), ended: None, is_certain: false });
    }

    /// The command was answered, or its connection closed.
    pub fn end(&self, is_certain: bool) {
        if let Some(last) = self.all().last_mut() {
            (last.ended, last.is_certain) = (Some(Instant::now()), is_certain);
        }
    }

    /// None is to begin while this is there; one may be under way.
    pub fn put_off(&self) -> PutOff<'_> {
        self.put_off.fetch_add(1, Ordering::SeqCst);
        PutOff(self)
    }

    pub fn are_put_off(&self) -> bool {
        self.put_off.load(Ordering::SeqCst) > 0
    }

    /// The beginning of the first that may have come after something that was asked for then.
    pub fn first_since(&self, asked: Instant) -> Option<Instant> {
        let meets = |flush: &&Flush| flush.ended.is_none_or(|ended| ended > asked);
        self.all().iter().find(meets).map(|flush| flush.begun)
    }

    pub fn any_since(&self, asked: Instant) -> bool {
        self.first_since(asked).is_some()
    }

    /// Whether everything was certainly flushed at some time between these two.
    pub fn took_all(&self, from: Instant, until: Instant) -> bool {
        let within = |flush: &Flush| flush.begun > from && flush.ended.is_some_and(|ended| ended < until);
        self.all().iter().any(|flush| flush.is_certain && within(flush))
    }

    fn all(&self) -> MutexGuard<'_, Vec<Flush>> {
        self.all.lock().expect("no panic")
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;

    fn later() -> Instant {
        sleep(Duration::from_millis(1));
        let now = Instant::now();
        sleep(Duration::from_millis(1));
        now
    }

    #[test]
    fn what_is_asked_for_before_the_answer_may_be_flushed() {
        let flushes = Flushes::default();
        let before = later();
        flushes.begin();
        let during = later();
        assert!(flushes.any_since(during), "it may yet come");
        flushes.end(true);
        let after = later();
        assert!(flushes.first_since(before).is_some_and(|begun| before < begun && begun < during));
        assert!(flushes.any_since(during) && !flushes.any_since(after));
    }

    #[test]
    fn they_are_put_off_while_anything_is_under_way_that_they_would_bring_to_nothing() {
        let flushes = Flushes::default();
        let (one, other) = (flushes.put_off(), flushes.put_off());
        drop(one);
        assert!(flushes.are_put_off());
        drop(other);
        assert!(!flushes.are_put_off());
    }

    #[test]
    fn only_what_was_told_before_and_asked_about_after_it_is_certainly_gone() {
        let flushes = Flushes::default();
        let before = later();
        flushes.begin();
        let during = later();
        flushes.end(true);
        let after = later();
        assert!(flushes.took_all(before, after));
        assert!(!flushes.took_all(during, after) && !flushes.took_all(before, during));
        let flushes = Flushes::default();
        let before = later();
        flushes.begin();
        flushes.end(false);
        assert!(!flushes.took_all(before, later()), "it may have met a part only");
    }
}
