//! Splits the bytes of the fuzzer into parts, which arrive on several connections one after the other.

/// The number of connections.
pub const CONNECTIONS: usize = 3;

/// The byte that ends a part. No UTF-8 text contains it, so commands rarely need it.
const END: u8 = 0xff;

/// The number of a connection, and the bytes that arrive on it.
pub type Part<'b> = (usize, &'b [u8]);

/// Returns the parts. They go to the connections in turn.
pub fn of(bytes: &[u8]) -> Vec<Part<'_>> {
    bytes.split(|&byte| byte == END).enumerate().map(|(number, part)| (number % CONNECTIONS, part)).collect()
}
