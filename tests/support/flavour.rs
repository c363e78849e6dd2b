//! Which server this is, and what it therefore can do. Tests ask for abilities, never for versions.

use super::Client;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flavour {
    pub program: Program,
    pub version: (u32, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Redis,
    Valkey,
    /// Reports that it is Redis 7.2, and has in its module API a part of what Redis has since 7.4.
    Redict,
}

impl Program {
    const ALL: [Self; 3] = [Self::Valkey, Self::Redict, Self::Redis];

    fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Valkey => "valkey",
            Self::Redict => "redict",
        }
    }
}

impl Flavour {
    /// # Panics
    /// If `INFO server` has no version.
    pub fn of(client: &mut Client) -> Self {
        // The others report a version of Redis, too.
        let mut version_of = |program: Program| client.info("server", &format!("{}_version", program.name()));
        let (program, number) = Program::ALL
            .into_iter()
            .find_map(|program| Some((program, version_of(program)?)))
            .expect("a server that tells its version");
        let mut parts =
            number.split('.').map(|part| part.parse().unwrap_or_else(|_| panic!("not a version: {number}")));
        let version = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        Self { program, version }
    }

    pub fn is_valkey(self) -> bool {
        self.program == Program::Valkey
    }

    /// Whether a server that the tests know is called so.
    pub fn exists(name: &str) -> bool {
        let known =
            |program, versions: &[(u32, u32)]| versions.iter().any(|&version| Self { program, version }.is(name));
        known(Program::Redis, &[(7, 0), (7, 2), (7, 4), (8, 0), (8, 2), (8, 4), (8, 6), (8, 8), (8, 10)])
            || known(Program::Valkey, &[(7, 2), (8, 1), (9, 1)])
            || known(Program::Redict, &[(7, 3)])
    }

    /// Whether this is what a scenario calls it: `valkey`, `redis 8`, `redis 7.0`, `redict`.
    pub fn is(self, name: &str) -> bool {
        let (program, version) = name.split_once(' ').unwrap_or((name, ""));
        let (major, minor) = version.split_once('.').unwrap_or((version, ""));
        let fits = |wanted: &str, number: u32| wanted.is_empty() || wanted == number.to_string();
        program == self.program.name() && fits(major, self.version.0) && fits(minor, self.version.1)
    }

    fn at_least(self, redis: (u32, u32), valkey: (u32, u32)) -> bool {
        self.version >= if self.is_valkey() { valkey } else { redis }
    }

    /// Whether a module can make an ACL category of its own.
    pub fn has_module_acl_categories(self) -> bool {
        self.program == Program::Redict || self.at_least((7, 4), (8, 0))
    }
}
