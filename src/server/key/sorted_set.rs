//! Keys that hold a Sorted Set.
//!
//! The server has one range for each open key. Each function here stops the range that it has begun.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;

use redis_module::raw;

use super::Key;
use crate::server::api::OK;
use crate::server::string::{OwnedString, StringRef};

/// The outcome of adding a member that the Sorted Set did not have.
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
        if self.raw.is_null() {
            return None;
        }
        let mut score = 0.0;
        // SAFETY: the key is open, with a value of any type; `score` is a place for a score.
        let found = unsafe { api!(RedisModule_ZsetScore(self.raw, member.raw(), &raw mut score)) };
        let score = (found == OK).then_some(score)?;
        if self.member_count() == 1 {
            self.cache.only(score);
        }
        Some(score)
    }

    /// Returns the number of members of a Sorted Set, 0 if the key is empty.
    pub fn member_count(&self) -> usize {
        // SAFETY: the key is open, or null because it is empty, which the function accepts.
        unsafe { api!(RedisModule_ValueLength(self.raw)) }
    }

    /// Returns the member with the lowest score of a Sorted Set, and its score. Returns `None` for any other value.
    pub fn lowest(&self) -> Option<(OwnedString, f64)> {
        self.at(End::Lowest)
    }

    /// Returns the lowest score of a Sorted Set, `None` for any other value.
    pub fn lowest_score(&self) -> Option<f64> {
        self.score_at(End::Lowest, &self.cache.lowest)
    }

    /// Returns the highest score of a Sorted Set, `None` for any other value.
    pub fn highest_score(&self) -> Option<f64> {
        self.score_at(End::Highest, &self.cache.highest)
    }

    /// Returns the number of members whose score is lower than `score`, or `most` if there are more.
    pub fn count_below(&self, score: f64, most: usize) -> usize {
        if self.raw.is_null() {
            return 0;
        }
        let mut count = 0_usize;
        // SAFETY: as in `score`; the range is stopped before any other call for the key.
        unsafe {
            api!(RedisModule_ZsetFirstInScoreRange(self.raw, f64::NEG_INFINITY, score, 0, 1));
            while count < most && api!(RedisModule_ZsetRangeEndReached(self.raw)) == 0 {
                count = count.saturating_add(1); // Less than `most`, so it does not saturate.
                api!(RedisModule_ZsetRangeNext(self.raw));
            }
            api!(RedisModule_ZsetRangeStop(self.raw));
        }
        count
    }

    /// Sets the score of a member of a Sorted Set, which is created if the key is empty. Has no effect on any other value.
    ///
    /// The score must not be NaN, which would leave an empty Sorted Set on Redis 7.0.
    pub fn set_score(&mut self, member: StringRef<'_>, score: f64) {
        if !self.is_writable() {
            return;
        }
        debug_assert!(!score.is_nan(), "a score is NaN");
        let is_first = self.is_empty();
        let mut outcome = 0;
        // SAFETY: the key is open for writing; the server copies the member, and `outcome` is a place for an integer.
        unsafe { api!(RedisModule_ZsetAdd(self.raw, score, member.raw(), &raw mut outcome)) };
        match outcome {
            ADDED if is_first => {
                self.cache.only(score);
                self.cache.expiry.set(Some(None));
            }
            ADDED => self.cache.added(score),
            _ => self.cache.forget_ends(),
        }
    }

    /// Removes a member of a Sorted Set. Deletes the key with its last member. Has no effect on any other value.
    pub fn remove_member(&mut self, member: StringRef<'_>) {
        let Some(score) = self.score(member).filter(|_| self.is_writable()) else { return };
        if self.member_count() == 1 {
            return self.delete(); // This costs the server less than to remove the member first.
        }
        // SAFETY: the key is open for writing.
        let result = unsafe { api!(RedisModule_ZsetRem(self.raw, member.raw(), ptr::null_mut())) };
        debug_assert_eq!(result, OK, "the server refuses to remove a member");
        self.cache.removed(score);
    }

    /// Returns the score at an end, which `known` keeps.
    fn score_at(&self, end: End, known: &Cell<Option<f64>>) -> Option<f64> {
        let read = || self.at(end).map(|(_, score)| score);
        debug_assert!(known.get().is_none_or(|score| Some(score) == read()), "the cache is wrong");
        if known.get().is_none() {
            known.set(read());
            if let (1, Some(only)) = (self.member_count(), known.get()) {
                self.cache.only(only);
            }
        }
        known.get()
    }

    fn at(&self, end: End) -> Option<(OwnedString, f64)> {
        if self.raw.is_null() || self.member_count() == 0 {
            return None;
        }
        let (least, most) = (f64::NEG_INFINITY, f64::INFINITY);
        let mut score = 0.0;
        // SAFETY: as in `count_below`. The server creates the string for the module, or returns null.
        unsafe {
            match end {
                End::Lowest => api!(RedisModule_ZsetFirstInScoreRange(self.raw, least, most, 0, 0)),
                End::Highest => api!(RedisModule_ZsetLastInScoreRange(self.raw, least, most, 0, 0)),
            };
            let member = api!(RedisModule_ZsetRangeCurrentElement(self.raw, &raw mut score));
            api!(RedisModule_ZsetRangeStop(self.raw));
            OwnedString::from_raw(member).map(|member| (member, score))
        }
    }
}
