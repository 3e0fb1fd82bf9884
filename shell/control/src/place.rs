//! Where desired state is: in a folder, or in a database of a PostgreSQL server. And where its
//! documents are.

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

/// `[documents] at`: `database`, a path, or `s3://BUCKET/PREFIX/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocumentsPlace {
    /// Nowhere else: in the rows of the database.
    Database,
    Folder(PathBuf),
    Bucket {
        name: String,
        /// Empty, or with a slash at its end.
        prefix: String,
    },
}

/// Not a place for documents.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not a bucket: write s3://BUCKET/ or s3://BUCKET/PREFIX/, with a slash at the end"
)]
pub struct NoPlace(String);

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

impl FromStr for DocumentsPlace {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Self, NoPlace> {
        if text.starts_with("s3:") {
            let bucket = wire::convert::Bucket::of(text).ok_or_else(|| NoPlace(text.to_owned()))?;
            let (name, prefix) = (bucket.name.to_owned(), bucket.prefix.to_owned());
            return Ok(Self::Bucket { name, prefix });
        }
        Ok(match text {
            "database" => Self::Database,
            path => Self::Folder(path.into()),
        })
    }
}

impl fmt::Display for DocumentsPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database => f.write_str("database"),
            Self::Folder(path) => path.display().fmt(f),
            Self::Bucket { name, prefix } => write!(f, "s3://{name}/{prefix}"),
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
    fn documents_are_in_the_database_in_a_folder_or_in_a_bucket() {
        for text in ["database", "./database", "/var/lib/documents", "s3://docs/", "s3://docs/a b/"]
        {
            let place: DocumentsPlace = text.parse().unwrap();
            assert_eq!(place.to_string(), text);
            let is_bucket = matches!(place, DocumentsPlace::Bucket { .. });
            assert_eq!(is_bucket, text.starts_with("s3"), "{place:?}");
        }
        for text in ["s3://docs", "s3:docs/", "s3://Docs/", "s3://docs/a"] {
            let refused = text.parse::<DocumentsPlace>().unwrap_err().to_string();
            assert!(refused.contains("slash at the end"), "{refused}");
        }
    }

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
