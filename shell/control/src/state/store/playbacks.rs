//! Which assets anybody may play, and which sessions have been ended.

use director::Playbacks;
use model::id::AssetId;
use model::units::UnixSeconds;
use playback::token::Session;

use super::{Result, Store, damaged, parse, signed, unsigned};

impl Store {
    pub(super) async fn playbacks(&self) -> Result<Playbacks> {
        let public = sqlx::query_scalar("SELECT asset FROM public_assets");
        let public: Vec<String> = public.fetch_all(&self.pool).await?;
        let revoked = sqlx::query_as("SELECT session, until FROM revoked_sessions");
        let revoked: Vec<(String, i64)> = revoked.fetch_all(&self.pool).await?;
        let session = |(session, until): (String, i64)| {
            let session = session.parse().map_err(|error| damaged(&error))?;
            Ok((session, UnixSeconds(unsigned(until)?)))
        };
        let public = public.iter().map(|asset| parse(asset)).collect::<Result<_>>()?;
        Ok(Playbacks::new(public, revoked.into_iter().map(session).collect::<Result<_>>()?))
    }

    /// Says whether anybody may play an asset.
    pub(crate) async fn put_public(&self, asset: &AssetId, is_public: bool) -> Result<()> {
        let query = sqlx::query(match is_public {
            true => "INSERT INTO public_assets (asset) VALUES ($1) ON CONFLICT DO NOTHING",
            false => "DELETE FROM public_assets WHERE asset = $1",
        });
        self.write(query.bind(asset.as_str())).await
    }

    /// Ends a session, and forgets those that have ended by themselves.
    pub(crate) async fn put_revoked_session(
        &self,
        session: &Session,
        until: UnixSeconds,
        now: UnixSeconds,
    ) -> Result<()> {
        let mut transaction = self.begin().await?;
        let gone = sqlx::query("DELETE FROM revoked_sessions WHERE until <= $1");
        gone.bind(signed(now.0)?).execute(&mut *transaction).await?;
        sqlx::query(
            "INSERT INTO revoked_sessions (session, until) VALUES ($1, $2)
             ON CONFLICT (session) DO UPDATE SET until = $2",
        )
        .bind(session.as_str())
        .bind(signed(until.0)?)
        .execute(&mut *transaction)
        .await?;
        Ok(transaction.commit().await?)
    }
}
