//! The servers of a run.

use support::Server;
use support::process::Process;

use crate::ground::Ground;

pub struct Scene {
    server: Server,
    process: Process,
}

impl Scene {
    /// Starts what the ground asks for; Err with the log of a server that ends at once.
    pub fn start(ground: &Ground) -> Result<Self, String> {
        let server = ground.setup().try_start().map_err(|ended| ended.log)?;
        let process = Process::of(&server);
        Ok(Self { server, process })
    }

    /// The one that clients talk to.
    pub fn server(&self) -> &Server {
        &self.server
    }

    pub fn process(&self) -> &Process {
        &self.process
    }
}
