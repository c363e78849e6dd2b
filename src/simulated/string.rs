//! Strings of the server: any bytes.

/// A string that the server owns for as long as `'a`.
#[derive(Clone, Copy)]
pub struct StringRef<'a>(pub(super) &'a [u8]);

/// A string that the module made.
pub struct OwnedString(Vec<u8>);

/// The arguments of a command, its name first.
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

    /// The string, for as long as it is not given back.
    pub fn as_ref(&self) -> StringRef<'_> {
        StringRef(&self.0)
    }
}

impl<'a> Arguments<'a> {
    /// The argument with this number, the command name being 0.
    pub fn get(self, number: usize) -> Option<StringRef<'a>> {
        self.0.get(number).map(|bytes| StringRef(bytes))
    }

    /// The arguments from this number on.
    pub fn arguments_from(self, number: usize) -> impl Iterator<Item = &'a [u8]> {
        self.0.get(number..).unwrap_or(&[]).iter().map(Vec::as_slice)
    }
}
