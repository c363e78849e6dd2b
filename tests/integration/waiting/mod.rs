//! Those who wait: their line, their places in it, and how they leave it.

mod blocking;
mod copies;
mod doubt;
mod hanging_up;
mod leaving;
mod max_waiters;
mod places;
mod resending;
mod takebacks;
