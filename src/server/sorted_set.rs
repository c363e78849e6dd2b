//! Keys that hold a Sorted Set.
//!
//! A key has one range at a time, which ends before any other function of the key is called.

use std::ffi::c_int;
use std::ptr;

use redis_module::raw;

use super::key::Key;
use super::string::{OwnedString, StringRef};

/// What the server says of a member that was not there before.
const ADDED: c_int = raw::REDISMODULE_ZADD_ADDED as c_int;

/// An end of a Sorted Set.
#[derive(Clone, Copy)]
enum End {
    Lowest,
    Highest,
}

impl<M> Key<'_, '_, M> {
    /// Returns the score of a member, if the value is a Sorted Set and has the member.
    pub fn score(&self, member: StringRef<'_>) -> Option<f64> {
        if self.raw().is_null() {
            return None;
        }
        let mut score = 0.0;
        // SAFETY: the key is open, of whatever type; the server writes the score where it is told to.
        let found = unsafe { api!(RedisModule_ZsetScore(self.raw(), member.raw(), &raw mut score)) };
        let score = (found == raw::REDISMODULE_OK as i32).then_some(score)?;
        if self.member_count() == 1 {
            self.known().only(score);
        }
        Some(score)
    }

    /// Returns the number of members of a Sorted Set.
    pub fn member_count(&self) -> usize {
        // SAFETY: the key is open, or null because it is empty, which the function takes.
        unsafe { api!(RedisModule_ValueLength(self.raw())) }
    }

    /// Returns the member with the lowest score of a Sorted Set, and its score.
    pub fn lowest(&self) -> Option<(OwnedString, f64)> {
        self.at(End::Lowest)
    }

    /// Returns the lowest score of a Sorted Set.
    pub fn lowest_score(&self) -> Option<f64> {
        self.known().lowest.get().or_else(|| self.score_at(End::Lowest))
    }

    /// Returns the highest score of a Sorted Set.
    pub fn highest_score(&self) -> Option<f64> {
        self.known().highest.get().or_else(|| self.score_at(End::Highest))
    }

    /// Returns the number of members whose score is lower than `score`, and counts no further than `most`.
    pub fn count_below(&self, score: f64, most: usize) -> usize {
        if self.raw().is_null() {
            return 0;
        }
        let mut count = 0_usize;
        // SAFETY: as in `score`; the range is stopped before anything else is done with the key.
        unsafe {
            api!(RedisModule_ZsetFirstInScoreRange(self.raw(), f64::NEG_INFINITY, score, 0, 1));
            while count < most && api!(RedisModule_ZsetRangeEndReached(self.raw())) == 0 {
                count = count.saturating_add(1);
                api!(RedisModule_ZsetRangeNext(self.raw()));
            }
            api!(RedisModule_ZsetRangeStop(self.raw()));
        }
        count
    }

    /// Sets the score of a member, which is not NaN, of a Sorted Set, which is created if the key is empty. Has no effect on
    /// any other value.
    ///
    /// NaN would leave an empty Sorted Set behind on Redis 7.0.
    pub fn set_score(&mut self, member: StringRef<'_>, score: f64) {
        if !self.is_writable() {
            return;
        }
        let is_first = self.is_empty();
        let mut outcome = 0;
        // SAFETY: the key is open for writing; the server copies the member, and writes the outcome where it is told to.
        unsafe { api!(RedisModule_ZsetAdd(self.raw(), score, member.raw(), &raw mut outcome)) };
        match outcome {
            ADDED if is_first => self.known().created(score),
            ADDED => self.known().added(score),
            _ => self.known().moved(),
        }
    }

    /// Removes a member of a Sorted Set, and with the last one the key.
    pub fn remove_member(&mut self, member: StringRef<'_>) {
        let Some(score) = self.score(member).filter(|_| self.is_writable()) else { return };
        if self.member_count() == 1 {
            return self.delete(); // It costs the server less than to empty the set before.
        }
        // SAFETY: the key is open for writing.
        unsafe { api!(RedisModule_ZsetRem(self.raw(), member.raw(), ptr::null_mut())) };
        self.known().removed(score);
    }

    fn score_at(&self, end: End) -> Option<f64> {
        let (_, score) = self.at(end)?;
        match end {
            _ if self.member_count() == 1 => self.known().only(score),
            End::Lowest => self.known().lowest.set(Some(score)),
            End::Highest => self.known().highest.set(Some(score)),
        }
        Some(score)
    }

    fn at(&self, end: End) -> Option<(OwnedString, f64)> {
        if self.raw().is_null() || self.member_count() == 0 {
            return None;
        }
        let (least, most) = (f64::NEG_INFINITY, f64::INFINITY);
        let mut score = 0.0;
        // SAFETY: as in `count_below`. The server creates the string for the module, or returns null.
        unsafe {
            match end {
                End::Lowest => api!(RedisModule_ZsetFirstInScoreRange(self.raw(), least, most, 0, 0)),
                End::Highest => api!(RedisModule_ZsetLastInScoreRange(self.raw(), least, most, 0, 0)),
            };
            let member = api!(RedisModule_ZsetRangeCurrentElement(self.raw(), &raw mut score));
            api!(RedisModule_ZsetRangeStop(self.raw()));
            (!member.is_null()).then(|| (OwnedString::from_raw(member), score))
        }
    }
}
