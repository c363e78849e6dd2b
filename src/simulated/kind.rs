//! The differences between the kinds of server that a module can notice.

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

/// When and how a server asks for the reply to a client that the module unblocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answering {
    /// Inside the call. The reply goes into the client's output buffer.
    Inside,
    /// At the end of the event-loop iteration.
    AtEndOfRound,
    /// Inside the call, for a fake client. The server passes the reply on at the end of the event-loop iteration.
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

    /// Returns the event for a key whose expiry a command has set into the past.
    pub(super) fn event_of_past_expiry(self) -> &'static str {
        if matches!(self, Self::Valkey8 | Self::Valkey9) { "expired" } else { "del" }
    }

    /// Returns whether the expiry cycle deletes a key in its last millisecond, in which a command still finds the key.
    pub(super) fn cycle_is_early(self) -> bool {
        self == Self::Redis8
    }

    /// Returns whether a module cannot block a client with a subscription.
    pub(super) fn blocks_no_subscriber(self) -> bool {
        matches!(self, Self::Valkey8 | Self::Valkey9)
    }

    /// Returns whether the server sends events for the keys that it deletes with their slot.
    pub(super) fn tells_of_lost_slots(self) -> bool {
        self != Self::Redis70
    }
}
