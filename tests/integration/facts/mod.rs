//! What the module relies on, shown by the server under test.

mod pair;
mod shown;
mod stage;
