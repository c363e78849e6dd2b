//! The commands on the keys of locks that do not come from the module.

use super::Dice;
use crate::request::Identity;
use crate::step::{CLIENTS, Counter, ExternalCommand, Score};

impl Dice {
    /// Returns a command that a client of the server sends for the key of a lock.
    pub(super) fn external_command(&mut self) -> ExternalCommand {
        let kind: fn(&mut Self) -> ExternalCommand = self.weighed(&[
            (6, |dice| ExternalCommand::Delete(dice.lock())),
            (1, |dice| ExternalCommand::Unlink(dice.lock())),
            (1, |dice| ExternalCommand::GetDel(dice.lock())),
            (1, |dice| ExternalCommand::TakeOut { lock: dice.lock(), identity: Identity::from(dice.client()) }),
            (1, |dice| ExternalCommand::SetKeep { lock: dice.lock(), identity: dice.stranger() }),
            (1, |dice| ExternalCommand::Restore {
                lock: dice.lock(),
                identity: dice.stranger(),
                lease: dice.within(0, 200) as u16,
            }),
            (1, |dice| ExternalCommand::SetCounter {
                lock: dice.lock(),
                value: match dice.within(0, 6) {
                    0 => Counter::Text,
                    1 => Counter::Ahead,
                    2 => Counter::AtItsEnd,
                    3 => Counter::BehindItsEnd,
                    _ => Counter::Expiring(dice.within(1, 300) as u16),
                },
            }),
            (3, |dice| ExternalCommand::Set {
                lock: dice.lock(),
                identity: dice.stranger(),
                lease: dice.percent(70).then(|| dice.within(1, 200) as u16),
            }),
            (1, |dice| ExternalCommand::SetHash {
                lock: dice.lock(),
                identity: dice.stranger(),
                holds: dice.within(0, 3) as u8,
            }),
            (1, |dice| ExternalCommand::RemoveShare { lock: dice.lock(), identity: Identity::from(dice.client()) }),
            (1, |dice| ExternalCommand::PopShare(dice.lock())),
            (1, |dice| ExternalCommand::AddShare {
                lock: dice.lock(),
                identity: if dice.percent(30) { Identity::from(dice.client()) } else { dice.stranger() },
                score: if dice.percent(30) { Score::Never } else { Score::In(dice.within(-20, 300) as i16) },
            }),
            (1, |dice| ExternalCommand::Push(dice.lock())),
            (3, |dice| ExternalCommand::Expire { lock: dice.lock(), ms: dice.within(-5, 150) as i16 }),
            (1, |dice| ExternalCommand::Persist(dice.lock())),
            (2, |dice| ExternalCommand::Rename(dice.lock(), dice.lock())),
            (1, |dice| ExternalCommand::Copy(dice.lock(), dice.lock())),
            (1, |dice| ExternalCommand::Move(dice.lock(), dice.within(0, 2) as u8)),
            (1, |_| ExternalCommand::FlushDb),
            (1, |_| ExternalCommand::FlushAll),
            (1, |_| ExternalCommand::SwapDb),
            (1, |_| ExternalCommand::Reload),
            (2, |_| ExternalCommand::DeleteAll),
        ]);
        kind(self)
    }

    /// Returns a name that no client has.
    fn stranger(&mut self) -> Identity {
        Identity::from(CLIENTS) + self.within(0, 3) as Identity
    }
}
