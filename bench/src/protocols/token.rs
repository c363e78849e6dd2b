//! Fresh tokens.

use std::io::Write;

const LENGTH: usize = 32;

/// A token of 32 characters for each acquisition, as long as those of redis-py. It names the client and counts, which
/// costs less than chance and is as good for a measurement.
pub struct Tokens {
    client: usize,
    drawn: u64,
    text: [u8; LENGTH],
}

impl Tokens {
    pub fn new(client: usize) -> Self {
        let mut tokens = Self { client, drawn: 0, text: [b'0'; LENGTH] };
        tokens.draw();
        tokens
    }

    /// Makes another token the present one.
    pub fn draw(&mut self) {
        self.drawn += 1;
        let mut text = self.text.as_mut_slice();
        write!(text, "{:016x}{:016x}", self.client, self.drawn).expect("two numbers that fill a token");
    }

    pub fn present(&self) -> &[u8] {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_new() {
        let mut tokens = Tokens::new(3);
        let first = tokens.present().to_vec();
        tokens.draw();
        assert_ne!(tokens.present(), first);
        assert_ne!(Tokens::new(4).present(), first);
    }
}
