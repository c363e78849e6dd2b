//! `make upgrade`: an older build of the module and this one in one replicated set, in a rolling restart with Sentinel, and
//! one after the other in one server. `OLD_MODULE` names the older build, which scripts/upgrade makes.

mod exchange;
mod places;
mod planned;
mod restart;
mod rolling;
mod unknown;
mod versions;
mod workers;
