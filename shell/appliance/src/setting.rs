//! One setting: a value with its unit, and the errors of settings.

use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration {path}: {error}")]
    Read { path: PathBuf, error: std::io::Error },
    /// Not TOML, an unknown key, or a value of the wrong kind.
    #[error("{source_name}: {message}")]
    Form {
        source_name: String,
        /// What was wrong, with its place.
        message: String,
    },
    #[error("[{section}] {key}: {message}")]
    Value {
        section: &'static str,
        key: &'static str,
        /// What is wrong and what would be right.
        message: String,
    },
}

/// A value with its unit, as text.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String", bound = "")]
pub(crate) struct Quantity<T: FromStr<Err = model::units::UnitError>>(pub(crate) T);

impl<T: FromStr<Err = model::units::UnitError>> TryFrom<String> for Quantity<T> {
    type Error = model::units::UnitError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse().map(Self)
    }
}

/// A variant's name as the file has it, in quotes.
pub(crate) fn word(value: &impl Serialize) -> String {
    toml::Value::try_from(value).expect("a variant's name is TOML").to_string()
}

pub(crate) fn wrong(section: &'static str, key: &'static str, message: String) -> ConfigError {
    ConfigError::Value { section, key, message }
}
