//! What whoever runs the server sees of the module: docs/operations.md.

mod audience;
mod loading;
mod second_module;
