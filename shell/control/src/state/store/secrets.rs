//! The fleet's secrets, sealed: in a database that two writers share.

use super::database::Dialect;
use super::{Result, Store};

impl Store {
    /// All of them, by name; none where one writer has them in its folder.
    pub(crate) async fn secrets(&self) -> Result<Vec<(String, Vec<u8>)>> {
        match self.dialect {
            Dialect::Sqlite => Ok(Vec::new()),
            Dialect::Postgres => {
                let query = sqlx::query_as("SELECT name, sealed FROM secrets");
                Ok(query.fetch_all(&self.pool).await?)
            }
        }
    }

    pub(crate) async fn put_secrets(&self, sealed: &[(&str, Vec<u8>)]) -> Result<()> {
        let mut transaction = self.begin().await?;
        for (name, sealed) in sealed {
            let query = "INSERT INTO secrets (name, sealed) VALUES ($1, $2)
                         ON CONFLICT (name) DO UPDATE SET sealed = $2";
            let query = sqlx::query(query).bind(*name).bind(sealed.as_slice());
            query.execute(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }
}
