//! The function that the server calls for a command of the module.

use std::any::Any;

use super::string::Arguments;

/// The function that the server calls for a command. It gets the context without the type of the module.
#[derive(Clone, Copy)]
pub struct CommandHandler(pub(super) fn(&mut dyn Any, Arguments<'_>));
