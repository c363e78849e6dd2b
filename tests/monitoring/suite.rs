//! `make monitoring`: what contrib/ has for Prometheus and Grafana, run with the real programs against servers with the
//! module and clients of every kind. No Grafana is started: its queries are run in Prometheus.
//!
//! `SERVERS` has the servers, a name and a path on each line (else the one under test). With `PLOT=file` the picture of
//! docs/guides/monitoring.md is drawn there.

mod alerts;
mod causes;
mod contrib;
mod dashboard;
mod live;
mod picture;
mod programs;
mod prometheus;
mod script;
mod stage;
mod traffic;
