//! Certificates and one-time codes on disk.

use identity::member::Member;
use model::units::UnixSeconds;
use wire::v1::identity::MemberKind;

use super::{Result, Store, StoreError, signed, unsigned};
use crate::members::identities::{CODES_KEPT_S, Certificate, KeptCode};

impl Store {
    /// All certificates that were issued and not forgotten.
    pub(crate) async fn certificates(&self) -> Result<Vec<Certificate>> {
        type Row = (String, String, String, String, String, String, i64, i64, Option<i64>);
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT serial, kind, name, key, machine, software, issued, expires, revoked_at
             FROM identities",
        )
        .fetch_all(&self.pool)
        .await?;
        let certificate =
            |(serial, kind, name, key, machine, software, issued, expires, revoked): Row| {
                Ok(Certificate {
                    member: member(&kind, name)?,
                    serial,
                    key,
                    machine,
                    software,
                    issued: UnixSeconds(unsigned(issued)?),
                    expires: UnixSeconds(unsigned(expires)?),
                    revoked: revoked.map(unsigned).transpose()?.map(UnixSeconds),
                })
            };
        rows.into_iter().map(certificate).collect()
    }

    /// All one-time codes that were not forgotten.
    pub(crate) async fn codes(&self) -> Result<Vec<KeptCode>> {
        type Row = (String, String, String, i64, Option<i64>);
        let query = sqlx::query_as("SELECT hash, kind, name, expires, used_at FROM codes");
        let rows: Vec<Row> = query.fetch_all(&self.pool).await?;
        let code = |(hash, kind, name, expires, used): Row| {
            Ok(KeptCode {
                hash,
                member: member(&kind, name)?,
                expires: UnixSeconds(unsigned(expires)?),
                used: used.map(unsigned).transpose()?.map(UnixSeconds),
            })
        };
        rows.into_iter().map(code).collect()
    }

    /// Adds a code instead of the open one of the same member, and forgets what is long over.
    pub(crate) async fn put_code(&self, code: &KeptCode, now: UnixSeconds) -> Result<()> {
        let mut transaction = self.begin().await?;
        sqlx::query("DELETE FROM codes WHERE expires <= $1")
            .bind(signed(now.0.saturating_sub(CODES_KEPT_S))?)
            .execute(&mut *transaction)
            .await?;
        sqlx::query("DELETE FROM codes WHERE kind = $1 AND name = $2 AND used_at IS NULL")
            .bind(code.member.kind.word())
            .bind(&code.member.name)
            .execute(&mut *transaction)
            .await?;
        sqlx::query("INSERT INTO codes (hash, kind, name, expires) VALUES ($1, $2, $3, $4)")
            .bind(&code.hash)
            .bind(code.member.kind.word())
            .bind(&code.member.name)
            .bind(signed(code.expires.0)?)
            .execute(&mut *transaction)
            .await?;
        Ok(transaction.commit().await?)
    }

    /// A code is used, what its member had before is revoked, and this is the new identity: all of
    /// it or nothing. Hardware of an appliance is learnt anew.
    pub(crate) async fn put_enrolment(&self, hash: &str, certificate: &Certificate) -> Result<()> {
        let mut transaction = self.begin().await?;
        let now = signed(certificate.issued.0)?;
        sqlx::query("UPDATE codes SET used_at = $2 WHERE hash = $1")
            .bind(hash)
            .bind(now)
            .execute(&mut *transaction)
            .await?;
        let Member { kind, name } = &certificate.member;
        revoke(&mut transaction, &certificate.member, now).await?;
        if *kind == MemberKind::Appliance {
            sqlx::query(
                "UPDATE appliances SET cloned = 0, machine = $2, drives = NULL WHERE id = $1",
            )
            .bind(name)
            .bind(&certificate.machine)
            .execute(&mut *transaction)
            .await?;
        }
        insert(&mut transaction, certificate).await?;
        Ok(transaction.commit().await?)
    }

    /// One more certificate of an identity. Those that have expired are forgotten.
    pub(crate) async fn put_certificate(&self, certificate: &Certificate) -> Result<()> {
        let mut transaction = self.begin().await?;
        sqlx::query("DELETE FROM identities WHERE expires <= $1")
            .bind(signed(certificate.issued.0)?)
            .execute(&mut *transaction)
            .await?;
        insert(&mut transaction, certificate).await?;
        Ok(transaction.commit().await?)
    }

    /// Refuses all that the member has, and its open code.
    pub(crate) async fn revoke(&self, member: &Member, now: UnixSeconds) -> Result<()> {
        let mut transaction = self.begin().await?;
        revoke(&mut transaction, member, signed(now.0)?).await?;
        sqlx::query("DELETE FROM codes WHERE kind = $1 AND name = $2")
            .bind(member.kind.word())
            .bind(&member.name)
            .execute(&mut *transaction)
            .await?;
        Ok(transaction.commit().await?)
    }
}

type Transaction = sqlx::Transaction<'static, sqlx::Any>;

async fn revoke(transaction: &mut Transaction, member: &Member, now: i64) -> Result<()> {
    sqlx::query(
        "UPDATE identities SET revoked_at = $3
         WHERE kind = $1 AND name = $2 AND revoked_at IS NULL AND $3 < expires",
    )
    .bind(member.kind.word())
    .bind(&member.name)
    .bind(now)
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

async fn insert(transaction: &mut Transaction, certificate: &Certificate) -> Result<()> {
    sqlx::query(
        "INSERT INTO identities (serial, kind, name, key, machine, software, issued, expires)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(&certificate.serial)
    .bind(certificate.member.kind.word())
    .bind(&certificate.member.name)
    .bind(&certificate.key)
    .bind(&certificate.machine)
    .bind(&certificate.software)
    .bind(signed(certificate.issued.0)?)
    .bind(signed(certificate.expires.0)?)
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

fn member(kind: &str, name: String) -> Result<Member> {
    let found = MemberKind::of_word(kind);
    let kind = found.ok_or_else(|| StoreError::Damaged(format!("{name} is a {kind}")))?;
    Ok(Member { kind, name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::identities::{Denied, Identities};
    use identity::member::Seen;

    const NOW: UnixSeconds = UnixSeconds(1000);

    #[tokio::test]
    async fn identities_and_codes_are_the_same_after_opening_again() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::of_test(state.path()).await.unwrap();
        let mut table = Identities::default();
        let member = Member::front("f1");
        for (hash, serial, key) in [("h1", "1", "k1"), ("h2", "2", "k2")] {
            let code = KeptCode {
                hash: hash.to_owned(),
                member: member.clone(),
                expires: UnixSeconds(1100),
                used: None,
            };
            store.put_code(&code, NOW).await.unwrap();
            table.put_code(code);
            let certificate = certificate(&member, serial, key);
            store.put_enrolment(hash, &certificate).await.unwrap();
            table.enrolled(hash, certificate);
        }
        let renewed = certificate(&member, "3", "k2");
        store.put_certificate(&renewed).await.unwrap();
        table.renewed(renewed);
        let gone = Member::appliance("a1");
        store.put_certificate(&certificate(&gone, "4", "k4")).await.unwrap();
        table.renewed(certificate(&gone, "4", "k4"));
        store.revoke(&gone, NOW).await.unwrap();
        table.revoke(&gone, NOW);
        store.close().await;

        let store = Store::of_test(state.path()).await.unwrap();
        let read =
            Identities::new(store.certificates().await.unwrap(), store.codes().await.unwrap());
        assert_eq!(format!("{read:?}"), format!("{table:?}"));
        let seen = |serial: &str, key: &str, member: &Member| Seen {
            member: member.clone(),
            serial: serial.to_owned(),
            key: key.to_owned(),
            not_before: NOW,
            not_after: UnixSeconds(2000),
        };
        assert_eq!(read.admit(&seen("3", "k2", &member), NOW), Ok(()));
        assert_eq!(read.admit(&seen("1", "k1", &member), NOW), Err(Denied::Revoked));
        assert_eq!(read.admit(&seen("4", "k4", &gone), NOW), Err(Denied::Revoked));
    }

    fn certificate(member: &Member, serial: &str, key: &str) -> Certificate {
        Certificate {
            member: member.clone(),
            serial: serial.to_owned(),
            key: key.to_owned(),
            machine: "ab".repeat(16),
            software: "1.0".to_owned(),
            issued: NOW,
            expires: UnixSeconds(2000),
            revoked: None,
        }
    }
}
