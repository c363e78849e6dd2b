//! Strings of the server, which can hold any bytes.

/// A string that the server owns during `'a`.
#[derive(Clone, Copy)]
pub struct StringRef<'a>(pub(super) &'a [u8]);

/// A string that the module made.
pub struct OwnedString(Vec<u8>);

/// The arguments of a command. The first one is the name of the command.
#[derive(Clone, Copy)]
pub struct Arguments<'a>(pub(super) &'a [Vec<u8>]);

impl<'a> StringRef<'a> {
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }
}

impl OwnedString {
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    /// Returns a reference to the string.
    pub fn as_ref(&self) -> StringRef<'_> {
        StringRef(&self.0)
    }
}

impl<'a> Arguments<'a> {
    /// Returns the argument with this number. The command name has the number 0.
    pub fn get(self, number: usize) -> Option<StringRef<'a>> {
        self.0.get(number).map(|bytes| StringRef(bytes))
    }

    /// Returns the arguments from this number on.
    pub fn arguments_from(self, number: usize) -> impl Iterator<Item = &'a [u8]> {
        self.0.get(number..).unwrap_or(&[]).iter().map(Vec::as_slice)
    }
}
