//! The witness in a real server. The tests of the simulated one include the folder `witness` as it is.

mod witness;

redis_lock::server::entry_points!(witness::Witness);
