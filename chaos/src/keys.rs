//! The locks that the clients of a run contend for.

#[derive(Debug)]
pub struct Key {
    pub number: usize,
    pub database: u32,
    pub name: String,
    /// Only LOCK commands touch it, so that all rules hold. Other commands change a rough key too: deletion, expiry,
    /// overwriting, flushing.
    pub is_strict: bool,
    /// How many shares can be held at the same time. All requests for a share of this key say so.
    pub limit: Option<usize>,
}

impl Key {
    /// Whether the observer asks LOCK.INFO about it. That makes the server notice the end of a lease, so some keys are
    /// left out: there the module must notice it without a request.
    pub fn is_observed(&self) -> bool {
        self.number % 4 != 3
    }
}

const LIMITS: [Option<usize>; 5] = [None, Some(2), Some(4), Some(1), Some(3)];

/// Strict keys are in the first two databases, rough ones in the first and in two that are flushed and swapped.
const PARTS: [(u32, bool); 5] = [(0, true), (1, true), (0, false), (2, false), (3, false)];

pub const DATABASES: u32 = 4;

/// The databases that are flushed and swapped as a whole.
pub const FLUSHED: [u32; 2] = [2, 3];

/// This number of keys at the front of each part get half of the requests.
const HOT: usize = 3;

pub struct Keys(Vec<Key>);

impl Keys {
    /// `each` keys in each part; all of them are rough where locks can be evicted. In a cluster the names of a database
    /// end in its suffix.
    pub fn new(each: usize, evicts: bool, suffixes: &[String]) -> Self {
        let names = PARTS.iter().flat_map(|part| (0..each).map(move |index| (part, index)));
        let key = |(number, (&(database, is_strict), index))| {
            let is_strict = is_strict && !evicts;
            let letter = if is_strict { 's' } else { 'r' };
            // Some are locks of python-redis-lock, whose waiters the module can wake.
            let prefix = if index % 3 == 1 { "lock:" } else { "" };
            let suffix = suffixes.get(database as usize).map_or("", String::as_str);
            let name = format!("{prefix}{letter}{index}{suffix}");
            Key { number, database, name, is_strict, limit: LIMITS[index % LIMITS.len()] }
        };
        Self(names.enumerate().map(key).collect())
    }

    pub fn all(&self) -> &[Key] {
        &self.0
    }

    pub fn any(&self, random: &mut fastrand::Rng) -> &Key {
        self.in_part(random.usize(..PARTS.len()), random)
    }

    pub fn named(&self, database: u32, name: &str) -> Option<&Key> {
        self.0.iter().find(|key| key.database == database && key.name == name)
    }

    pub fn in_database(&self, database: u32, random: &mut fastrand::Rng) -> &Key {
        let part = random.choice((0..PARTS.len()).filter(|part| PARTS[*part].0 == database).collect::<Vec<_>>());
        self.in_part(part.expect("a part in each database"), random)
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
