//! Waiters, as far as scenarios cannot say it: raw connections, connections that are cut, and requests that meet each other.

mod blocking;
mod doubt;
mod hanging_up;
mod leaving;
mod resending;
