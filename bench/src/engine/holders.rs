//! Who holds which lock, as far as clients know.

use super::Locks;

pub struct Holders {
    locks: Locks,
    /// Whether each client holds its lock.
    holds: Vec<bool>,
    /// How many hold each lock.
    counts: Vec<usize>,
}

impl Holders {
    pub fn of(locks: Locks, clients: usize) -> Self {
        Self { locks, holds: vec![false; clients], counts: vec![0; clients] }
    }

    /// # Panics
    ///
    /// If as many others hold the lock as may.
    pub fn add(&mut self, client: usize) {
        let count = &mut self.counts[self.locks.number(client)];
        assert!(*count < self.locks.most_holders(), "client {client} was granted a lock that others hold");
        *count += 1;
        self.holds[client] = true;
    }

    /// # Panics
    ///
    /// If the client does not hold its lock.
    pub fn remove(&mut self, client: usize) {
        assert!(self.holds[client], "a client releases a lock that is not its own");
        self.holds[client] = false;
        self.counts[self.locks.number(client)] -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_comes_free() {
        let mut holders = Holders::of(Locks::One, 2);
        holders.add(0);
        holders.remove(0);
        holders.add(1);
    }

    #[test]
    #[should_panic(expected = "others hold")]
    fn two_holders_are_noticed() {
        let mut holders = Holders::of(Locks::One, 2);
        holders.add(0);
        holders.add(1);
    }

    #[test]
    fn each_holds_its_own() {
        let mut holders = Holders::of(Locks::Each, 2);
        holders.add(0);
        holders.add(1);
    }

    #[test]
    #[should_panic(expected = "others hold")]
    fn no_more_share_than_may() {
        let mut holders = Holders::of(Locks::Shared(2), 3);
        (0..3).for_each(|client| holders.add(client));
    }

    #[test]
    #[should_panic(expected = "not its own")]
    fn only_a_holder_releases() {
        let mut holders = Holders::of(Locks::Shared(2), 2);
        holders.add(0);
        holders.remove(1);
    }
}
