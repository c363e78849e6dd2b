//! Which server this is, and what it therefore can do. Tests ask for abilities, never for versions.

use super::Client;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flavour {
    pub valkey: bool,
    pub version: (u32, u32),
}

impl Flavour {
    pub fn of(client: &mut Client) -> Self {
        let valkey = client.info("server", "valkey_version");
        let number = valkey
            .clone()
            .unwrap_or_else(|| client.info("server", "redis_version").expect("a server that tells its version"));
        let mut parts =
            number.split('.').map(|part| part.parse().unwrap_or_else(|_| panic!("not a version: {number}")));
        let version = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        Self { valkey: valkey.is_some(), version }
    }

    /// Whether this is what a scenario calls it: `valkey`, `redis 8`, `redis 7.0`.
    pub fn is(self, name: &str) -> bool {
        let (program, version) = name.split_once(' ').unwrap_or((name, ""));
        let (major, minor) = version.split_once('.').unwrap_or((version, ""));
        let fits = |wanted: &str, number: u32| wanted.is_empty() || wanted == number.to_string();
        program == if self.valkey { "valkey" } else { "redis" }
            && fits(major, self.version.0)
            && fits(minor, self.version.1)
    }

    fn at_least(self, redis: (u32, u32), valkey: (u32, u32)) -> bool {
        self.version >= if self.valkey { valkey } else { redis }
    }

    /// Whether a module can put its commands into the server's ACL categories. Elsewhere they are in none.
    pub fn has_acl_categories_for_modules(self) -> bool {
        self.at_least((7, 2), (7, 2))
    }

    /// Whether a module can make an ACL category of its own.
    pub fn has_module_acl_categories(self) -> bool {
        self.at_least((7, 4), (8, 0))
    }

    /// Whether a client that a module unblocks has its answer in its buffer at once, so that it may be sent whatever
    /// happens then. Others make it, or hand it on from a stand-in, at the end of the loop round.
    pub fn answers_at_once(self) -> bool {
        !self.at_least((7, 4), (7, 2))
    }

    /// Whether a field of a Hash can have a time-out of its own.
    pub fn has_field_expiry(self) -> bool {
        self.at_least((7, 4), (9, 0))
    }
}
