//! `make upgrade`: an older build of the module and this one, in one replicated set and one after the other in one server.
//! `OLD_MODULE` names the older build, which scripts/upgrade makes.

mod failover;
mod guide;
mod restart;
mod versions;
