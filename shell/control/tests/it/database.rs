//! The database of a test: SQLite in its folder, or one of its own on the PostgreSQL server that
//! `NEARCAST_POSTGRES` names (`./x check postgres`).

use std::path::Path;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// The setting `state` of a test whose folder this is; the same again for the same folder.
pub(crate) fn state(folder: &Path) -> String {
    let Ok(server) = std::env::var("NEARCAST_POSTGRES") else {
        return folder.display().to_string();
    };
    // Names have at most 63 bytes; of a folder's, those at the end differ.
    let letters = folder.to_str().unwrap().bytes();
    let hex: String = letters.map(|byte| format!("{byte:02x}")).collect();
    let name = format!("t{}", &hex[hex.len().saturating_sub(60)..]);
    let url = format!("{server}/{name}");
    // A runtime of its own: who asks may be on one that is not to wait.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut server = PgConnection::connect(&format!("{server}/postgres")).await.unwrap();
            let sql = AssertSqlSafe(format!("CREATE DATABASE {name}"));
            let made = sqlx::raw_sql(sql).execute(&mut server).await;
            let is_there = made.as_ref().is_err_and(|error| error.to_string().contains("exists"));
            assert!(made.is_ok() || is_there, "{made:?}");
        });
    })
    .join()
    .unwrap();
    url
}

/// The settings of a writer whose folder this is.
pub(crate) fn settings(folder: &Path) -> String {
    format!("state = {:?}\nfolder = {:?}\n", state(folder), folder.display().to_string())
}
