//! Shows what was measured.

use crate::section::Section;

pub fn print(sections: &[Section]) {
    for section in sections {
        println!("{}", section.title);
    }
}
