//! How kinds of server differ, as far as a module notices it.

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    Redis70,
    Redis72,
    /// Redis 7.4 and later.
    Redis8,
    Valkey8,
    Valkey9,
}

/// When and how a server gets the reply for a client that the module lets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answering {
    /// Inside the call, into the client's buffer.
    Inside,
    /// At the end of the loop round.
    AtEndOfRound,
    /// Inside the call, by way of a stand-in whose reply is handed on at the end of the loop round.
    FakeClient,
}

impl ServerKind {
    pub const ALL: [Self; 5] = [Self::Redis70, Self::Redis72, Self::Redis8, Self::Valkey8, Self::Valkey9];

    pub(super) fn answering(self) -> Answering {
        match self {
            Self::Redis70 | Self::Redis72 => Answering::Inside,
            Self::Redis8 => Answering::AtEndOfRound,
            Self::Valkey8 | Self::Valkey9 => Answering::FakeClient,
        }
    }

    /// The event of a key whose expiry a command has set into the past.
    pub(super) fn event_of_past_expiry(self) -> &'static str {
        if matches!(self, Self::Valkey8 | Self::Valkey9) { "expired" } else { "del" }
    }

    /// Whether the cycle that looks for expired keys takes a key in its last millisecond, in which a look at it still finds it.
    pub(super) fn cycle_is_early(self) -> bool {
        self == Self::Redis8
    }

    /// Whether a client that has subscribed to a channel cannot be blocked by a module.
    pub(super) fn blocks_no_subscriber(self) -> bool {
        matches!(self, Self::Valkey8 | Self::Valkey9)
    }

    /// Whether there are events of the keys that go with their slot.
    pub(super) fn tells_of_lost_slots(self) -> bool {
        self != Self::Redis70
    }
}
