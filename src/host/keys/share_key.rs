//! Reads a Sorted Set as the shares of a lock. A member is a token, and its score is the end of its lease.

use crate::core::limits::MAX_EXPIRED;
use crate::core::{LATEST_SHARE_END, UnixMs};
use crate::host::state::Key;
use crate::server::{OwnedString, StringRef, ValueType};

/// Returns whether there may be more than [`MAX_EXPIRED`] expired members.
pub fn has_too_many_expired(key: &Key<'_, '_>) -> bool {
    key.member_count() > MAX_EXPIRED
}

/// The end of a share's lease, as the score has it.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub struct ShareEnd(f64);

/// The shares of a lock.
pub struct ShareView {
    /// The time of the read, but no later than the expiry time of the key: in a script, the server keeps an expired key.
    pub now: UnixMs,
    /// The number of shares that are held.
    pub held: usize,
    /// The earliest end, which may have passed.
    pub earliest: ShareEnd,
    pub latest: ShareEnd,
    /// The expiry time of the key. After external writes it may differ from the latest end.
    pub expiry: Option<UnixMs>,
}

impl ShareView {
    /// Returns the end of the last lease, or of the key if that comes earlier.
    pub fn ends_at(&self) -> Option<UnixMs> {
        [self.latest.time(), self.expiry].into_iter().flatten().min()
    }

    /// Returns whether the key ends before its last share. Then an external write has set its expiry time.
    pub fn outlives_key(&self) -> bool {
        ShareEnd::at(self.expiry) < self.latest
    }

    /// Returns whether there are expired members, or the key would outlive its last share.
    pub fn needs_purge(&self) -> bool {
        self.earliest.has_expired(self.now) || ShareEnd::at(self.expiry) > self.latest
    }
}

impl ShareEnd {
    /// Returns the end of a lease at `time`, at most [`LATEST_SHARE_END`], or of a share without a lease.
    pub fn at(time: Option<UnixMs>) -> Self {
        Self(time.map_or(f64::INFINITY, |time| time.min(LATEST_SHARE_END) as f64))
    }

    /// Returns the end as a time, or `None` if the share has no lease.
    pub fn time(self) -> Option<UnixMs> {
        self.0.is_finite().then_some(self.0 as UnixMs)
    }

    /// Returns the end as a score.
    pub fn score(self) -> f64 {
        self.0
    }

    /// Returns whether the share has expired. It is held through the millisecond in which it ends, like a key.
    pub fn has_expired(self, now: UnixMs) -> bool {
        self < Self::at(Some(now))
    }

    /// Returns whether the module writes such a score.
    fn is_ours(self) -> bool {
        let latest = LATEST_SHARE_END as f64;
        self.0 == f64::INFINITY || self.0 == (self.0 as UnixMs) as f64 && (-latest..=latest).contains(&self.0)
    }
}

/// Returns the shares of a lock, or `None` if the key is not a shared lock.
///
/// A Sorted Set is not a lock if its highest score has expired, if its highest score is finite and the key has no expiry time,
/// or if the module does not write such scores.
pub fn view(key: &Key<'_, '_>, now: UnixMs) -> Option<ShareView> {
    if key.value_type() != ValueType::SortedSet {
        return None;
    }
    let (earliest, latest) = (ShareEnd(key.lowest_score()?), self::latest(key)?);
    let expiry = key.expiry_of_value();
    let now = expiry.map_or(now, |end| end.min(now));
    let is_lock = earliest.is_ours() && latest.is_ours() && !latest.has_expired(now);
    if !is_lock || latest.time().is_some() && expiry.is_none() {
        return None;
    }
    let expired = if earliest.has_expired(now) { key.count_below(now as f64, MAX_EXPIRED) } else { 0 };
    debug_assert!(expired < key.member_count(), "the last share has not expired");
    let held = key.member_count().saturating_sub(expired);
    Some(ShareView { now, held, earliest, latest, expiry })
}

/// Returns the latest end, even if it has expired, or `None` if the key is empty.
pub fn latest(key: &Key<'_, '_>) -> Option<ShareEnd> {
    key.highest_score().map(ShareEnd)
}

/// Returns the token with the earliest end, if that has expired.
pub fn first_expired(key: &Key<'_, '_>, now: UnixMs) -> Option<OwnedString> {
    key.lowest().filter(|(_, score)| ShareEnd(*score).has_expired(now)).map(|(token, _)| token)
}

/// Returns the end of a token's share, even if it has expired, or `None` if there is no such share.
pub fn end_of(key: &Key<'_, '_>, token: StringRef<'_>) -> Option<ShareEnd> {
    key.score(token).map(ShareEnd)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMs = 1_000_000;

    #[test]
    fn share_holds_through_its_last_millisecond() {
        let end = ShareEnd::at(Some(NOW));
        assert_eq!((end.time(), end.score()), (Some(NOW), NOW as f64));
        assert!(!end.has_expired(NOW) && end.has_expired(NOW + 1));
        let never = ShareEnd::at(None);
        assert_eq!((never.time(), never.score()), (None, f64::INFINITY));
        assert!(!never.has_expired(UnixMs::MAX));
        assert_eq!(ShareEnd::at(Some(UnixMs::MAX)).time(), Some(LATEST_SHARE_END));
    }

    #[test]
    fn own_scores_are_exact_integers_or_infinite() {
        let latest = LATEST_SHARE_END as f64;
        for score in [f64::INFINITY, 0.0, 7.0, -7.0, latest, -latest] {
            assert!(ShareEnd(score).is_ours(), "{score}");
        }
        for score in [0.5, latest + 1.0, -latest - 1.0, f64::NEG_INFINITY] {
            assert!(!ShareEnd(score).is_ours(), "{score}");
        }
    }

    #[test]
    fn shared_lock_ends_with_last_share_or_key() {
        for (earliest, expiry, ends_at, outlives_key, needs_purge) in [
            (NOW, Some(NOW + 5), NOW + 5, false, false),
            (NOW - 1, Some(NOW + 5), NOW + 5, false, true),
            (NOW, Some(NOW + 4), NOW + 4, true, false),
            (NOW, Some(NOW + 6), NOW + 5, false, true),
            (NOW, None, NOW + 5, false, true),
        ] {
            let [earliest, latest] = [earliest, NOW + 5].map(|end| ShareEnd::at(Some(end)));
            let view = ShareView { now: NOW, held: 1, earliest, latest, expiry };
            assert_eq!(
                (view.ends_at(), view.outlives_key(), view.needs_purge()),
                (Some(ends_at), outlives_key, needs_purge)
            );
        }
    }
}
