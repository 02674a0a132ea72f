//! Command-line options whose values are the variants of an enum in a library.

use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use strum::{EnumMessage, VariantArray};

/// An enum whose variants have names and documentation.
pub trait Choice:
    Copy + VariantArray + EnumMessage + FromStr<Err = strum::ParseError> + Into<&'static str>
{
}

impl<T> Choice for T where
    T: Copy + VariantArray + EnumMessage + FromStr<Err = strum::ParseError> + Into<&'static str>
{
}

/// Returns a parser for the variants' names. Help and error texts list the names with their documentation.
pub fn choice<T: Choice + Send + Sync>() -> impl TypedValueParser<Value = T> {
    let value = |&variant: &T| {
        let help = variant.get_documentation().unwrap_or_default();
        PossibleValue::new(variant.into()).help(help.trim_end().replace('\n', " "))
    };
    PossibleValuesParser::new(T::VARIANTS.iter().map(value)).try_map(|name| name.parse::<T>())
}
