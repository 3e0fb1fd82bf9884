//! Where desired state is: in a folder, or in a database of a PostgreSQL server.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use settings::hide_passwords;

/// `state`: a path, or `postgres://USER@HOST/DATABASE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// SQLite, in this folder.
    Folder(PathBuf),
    Postgres(PostgresUrl),
}

/// The address of a database, which may have a password: shown without it.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl(String);

impl FromStr for Place {
    // Whatever it is, an error of it would be shown with the line that it stands in.
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let is_url = ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
        Ok(match is_url {
            true => Self::Postgres(PostgresUrl(text.to_owned())),
            false => Self::Folder(text.into()),
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => path.display().fmt(f),
            Self::Postgres(url) => fmt::Debug::fmt(url, f),
        }
    }
}

impl PostgresUrl {
    /// With its password.
    pub(crate) fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hide_passwords(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_shown_nowhere() {
        for (text, shown) in [
            ("postgres://c:secret@db/nearcast", "postgres://c:…@db/nearcast"),
            ("postgres://c@db/n?password=secret&sslmode=require", "postgres://c@db/n?password=…"),
            ("postgresql://db/n", "postgresql://db/n"),
            ("/var/lib/nearcast", "/var/lib/nearcast"),
        ] {
            let place: Place = text.parse().unwrap();
            assert!(place.to_string().starts_with(shown), "{place}");
            assert!(!format!("{place:?} {place}").contains("secret"), "{place:?}");
        }
    }
}
