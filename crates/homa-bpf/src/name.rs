//! Names of maps and programs.

/// Maximum length of an object's name in bytes, including the terminating zero.
const NAME_BYTES: usize = 16;

/// The name of a map or program, shown by tools that list them: at most 15 letters, digits or underscores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Name([u8; NAME_BYTES]);

impl Name {
    /// Creates a name.
    ///
    /// # Panics
    /// The name has more than 15 bytes; in a constant this is a compile-time error.
    #[must_use]
    pub const fn new(name: &str) -> Name {
        assert!(name.len() < NAME_BYTES, "a name leaves room for a zero");
        let (bytes, mut all, mut i) = (name.as_bytes(), [0; NAME_BYTES], 0);
        while i < bytes.len() {
            all[i] = bytes[i];
            i += 1;
        }
        Name(all)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
        f.write_str(&String::from_utf8_lossy(&self.0[..end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_without_their_zeroes() {
        assert_eq!(Name::new("homa_steer").to_string(), "homa_steer");
        assert_eq!(Name::new("").to_string(), "");
    }
}
