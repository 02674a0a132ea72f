//! Serde functions for types that are serialized in their text form, that of `Display` and `FromStr`.
use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serializer, de};

/// Serializes a value as its text.
///
/// # Errors
/// The errors of the serializer.
pub fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Parses a value from its text.
///
/// # Errors
/// The value is not a string, or its parser refuses it.
pub fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

/// Serde functions for optional values in text form.
pub mod option {
    use super::{Deserialize, Deserializer, Display, FromStr, Serializer, de};

    /// Serializes the text of a value, or null.
    ///
    /// # Errors
    /// The errors of the serializer.
    pub fn serialize<T: Display, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_none(),
        }
    }

    /// Parses the text, if there is one.
    ///
    /// # Errors
    /// The value is neither a string nor null, or its parser refuses it.
    pub fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(de::Error::custom)).transpose()
    }
}
