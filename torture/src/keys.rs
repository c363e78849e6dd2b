//! The locks that are fought for.

/// What may happen to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Only LOCK commands touch it, so that all rules hold.
    Strict,
    /// Other commands change it, too: deletion, expiry, overwriting, flushing.
    Rough,
}

#[derive(Debug)]
pub struct Key {
    /// Its place in [`Keys`].
    pub number: usize,
    pub database: u32,
    pub name: String,
    pub class: Class,
    /// How many shares may be held at once. All who want a share of this key say so.
    pub limit: Option<usize>,
}

impl Key {
    pub fn is_strict(&self) -> bool {
        self.class == Class::Strict
    }

    /// Whether LOCK.INFO may be asked about it. A look makes the server notice the end of a lease, so some keys are never
    /// looked at: there the module has to notice by itself.
    pub fn is_watched(&self) -> bool {
        self.number % 4 != 3
    }
}

/// The limits of the keys of a part, in turn.
const LIMITS: [Option<usize>; 5] = [None, Some(2), Some(4), Some(1), Some(3)];

/// All keys of the run, by database.
pub struct Keys(Vec<Key>);

/// Strict keys lie in the first two databases, rough ones in the first and in two that are flushed and swapped.
const PARTS: [(u32, Class); 5] =
    [(0, Class::Strict), (1, Class::Strict), (0, Class::Rough), (2, Class::Rough), (3, Class::Rough)];

/// How many databases have keys.
pub const DATABASES: u32 = 4;

/// The databases that are flushed and swapped as a whole.
pub const WILD: [u32; 2] = [2, 3];

/// So many keys at the front of each part get half of the requests.
const HOT: usize = 3;

impl Keys {
    /// `each` keys in each part; all of them are rough where any lock may be evicted. In a cluster the names of a database end
    /// in its suffix.
    pub fn new(each: usize, evicts: bool, suffixes: &[String]) -> Self {
        let names = PARTS.iter().flat_map(|part| (0..each).map(move |index| (part, index)));
        let key = |(number, (&(database, class), index))| {
            let class = if evicts { Class::Rough } else { class };
            let letter = if class == Class::Strict { 's' } else { 'r' };
            // Some are locks of python-redis-lock, whose waiters may be woken.
            let prefix = if index % 3 == 1 { "lock:" } else { "" };
            let suffix = suffixes.get(database as usize).map_or("", String::as_str);
            Key {
                number,
                database,
                name: format!("{prefix}{letter}{index}{suffix}"),
                class,
                limit: LIMITS[index % LIMITS.len()],
            }
        };
        Self(names.enumerate().map(key).collect())
    }

    pub fn all(&self) -> &[Key] {
        &self.0
    }

    /// A key of any kind, the same few often.
    pub fn any(&self, random: &mut fastrand::Rng) -> &Key {
        let part = random.usize(..PARTS.len());
        self.in_part(part, random)
    }

    /// The key with this name, if it is one of these.
    pub fn named(&self, database: u32, name: &str) -> Option<&Key> {
        self.0.iter().find(|key| key.database == database && key.name == name)
    }

    /// A key in a database, the same few often.
    pub fn in_database(&self, database: u32, random: &mut fastrand::Rng) -> &Key {
        let parts: Vec<usize> = (0..PARTS.len()).filter(|&part| PARTS[part].0 == database).collect();
        self.in_part(parts[random.usize(..parts.len())], random)
    }

    /// A key that other commands may change.
    pub fn rough(&self, random: &mut fastrand::Rng) -> &Key {
        let part = random.usize(2..PARTS.len());
        self.in_part(part, random)
    }

    fn in_part(&self, part: usize, random: &mut fastrand::Rng) -> &Key {
        let each = self.0.len() / PARTS.len();
        let among = if random.bool() { each.min(HOT) } else { each };
        &self.0[part * each + random.usize(..among)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_number_and_rough_ones_are_rough() {
        let keys = Keys::new(7, false, &[]);
        assert!(keys.all().iter().enumerate().all(|(at, key)| key.number == at));
        let mut random = fastrand::Rng::with_seed(1);
        assert!((0..100).all(|_| !keys.rough(&mut random).is_strict()));
        assert!((0..100).any(|_| keys.any(&mut random).is_strict()));
        assert!(!Keys::new(7, true, &[]).all().iter().any(Key::is_strict));
    }
}
