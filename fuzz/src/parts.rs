//! What the bytes of the fuzzer are: parts that arrive on several connections, one after the other.

/// How many connections there are.
pub const CONNECTIONS: usize = 3;

/// Ends a part; it is in no UTF-8 text, so a command rarely needs it.
const END: u8 = 0xff;

/// A part, and the number of the connection on which it arrives.
pub type Part<'b> = (usize, &'b [u8]);

/// The parts, which go to the connections in turn.
pub fn of(bytes: &[u8]) -> Vec<Part<'_>> {
    bytes.split(|&byte| byte == END).enumerate().map(|(number, part)| (number % CONNECTIONS, part)).collect()
}
