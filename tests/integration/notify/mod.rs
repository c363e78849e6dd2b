//! NOTIFY and SESSION in calls by other modules, and messages that many or disconnected clients wait for. Most tests of NOTIFY are in
//! tests/scenarios/notify.

mod calls;
mod subscribers;
