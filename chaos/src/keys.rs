//! The locks that the clients of a run contend for.

/// What can happen to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Only LOCK commands touch it, so that all rules hold.
    Strict,
    /// Other commands change it too: deletion, expiry, overwriting, flushing.
    Rough,
}

#[derive(Debug)]
pub struct Key {
    /// The index in [`Keys`].
    pub number: usize,
    pub database: u32,
    pub name: String,
    pub class: Class,
    /// How many shares can be held at the same time. All requests for a share of this key say so.
    pub limit: Option<usize>,
}

impl Key {
    pub fn is_strict(&self) -> bool {
        self.class == Class::Strict
    }

    /// Whether the observer asks LOCK.INFO about it. That makes the server notice the end of a lease, so some keys are
    /// left out: there the module must notice it without a request.
    pub fn is_observed(&self) -> bool {
        self.number % 4 != 3
    }
}

/// The limits of the keys of a part, in turn.
const LIMITS: [Option<usize>; 5] = [None, Some(2), Some(4), Some(1), Some(3)];

/// Strict keys are in the first two databases, rough ones in the first and in two that are flushed and swapped.
const PARTS: [(u32, Class); 5] =
    [(0, Class::Strict), (1, Class::Strict), (0, Class::Rough), (2, Class::Rough), (3, Class::Rough)];

/// The number of databases with keys.
pub const DATABASES: u32 = 4;

/// The databases that are flushed and swapped as a whole.
pub const FLUSHED: [u32; 2] = [2, 3];

/// This number of keys at the front of each part get half of the requests.
const HOT: usize = 3;

/// All keys of the run, by part.
pub struct Keys(Vec<Key>);

impl Keys {
    /// `each` keys in each part; all of them are rough where locks can be evicted. In a cluster the names of a database
    /// end in its suffix.
    pub fn new(each: usize, evicts: bool, suffixes: &[String]) -> Self {
        let names = PARTS.iter().flat_map(|part| (0..each).map(move |index| (part, index)));
        let key = |(number, (&(database, class), index))| {
            let class = if evicts { Class::Rough } else { class };
            let letter = if class == Class::Strict { 's' } else { 'r' };
            // Some are locks of python-redis-lock, whose waiters the module can wake.
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

    /// A key of any class. Hot keys come often.
    pub fn any(&self, random: &mut fastrand::Rng) -> &Key {
        self.in_part(random.usize(..PARTS.len()), random)
    }

    pub fn named(&self, database: u32, name: &str) -> Option<&Key> {
        self.0.iter().find(|key| key.database == database && key.name == name)
    }

    pub fn in_database(&self, database: u32, random: &mut fastrand::Rng) -> &Key {
        let parts: Vec<usize> = (0..PARTS.len()).filter(|&part| PARTS[part].0 == database).collect();
        self.in_part(parts[random.usize(..parts.len())], random)
    }

    /// A key that other commands can change.
    pub fn rough(&self, random: &mut fastrand::Rng) -> &Key {
        self.in_part(random.usize(2..PARTS.len()), random)
    }

    fn in_part(&self, part: usize, random: &mut fastrand::Rng) -> &Key {
        let each = self.0.len() / PARTS.len();
        let among = if random.bool() { each.min(HOT) } else { each };
        &self.0[part * each + random.usize(..among)]
    }
}

#[test]
fn rough_keys_are_rough_and_numbered() {
    let keys = Keys::new(7, false, &[]);
    assert!(keys.all().iter().enumerate().all(|(at, key)| key.number == at));
    let mut random = fastrand::Rng::with_seed(1);
    assert!((0..100).all(|_| !keys.rough(&mut random).is_strict()));
    assert!((0..100).any(|_| keys.any(&mut random).is_strict()));
    assert!(!Keys::new(7, true, &[]).all().iter().any(Key::is_strict));
}
