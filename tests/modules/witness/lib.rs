//! The witness as a module of a real server. The tests of the simulated server include the folder `witness` as a source module.

mod witness;

redis_lock::server::entry_points!(witness::Witness);
