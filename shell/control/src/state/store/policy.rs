//! The policy, as numbers by their names.

use director::{AFTER_MAX, FillPolicy, Policy};
use model::hours::{WINDOWS_MAX, Windows};
use model::units::{BitsPerSecond, Nanos};
use wire::convert::profiles_in;
use wire::v1::appliance::{Abilities, Profiles};

use super::{Result, Store, StoreError, damaged, put_meta, unsigned};

/// One for each window that a policy may have.
const FILL_WINDOWS: [&str; WINDOWS_MAX] =
    ["fill_window_1", "fill_window_2", "fill_window_3", "fill_window_4"];

/// What an appliance fetches at most of what is urgent outside of windows.
const URGENT: &str = "fill_urgent_bps";

/// A minute of a day is less.
const WINDOW_SCALE: u64 = 2048;

impl Store {
    pub(super) async fn policy(&self) -> Result<Policy> {
        Ok(Policy {
            copies: self.meta("copies").await?,
            versions_kept: self.meta("versions_kept").await?,
            profiles: self.profiles().await?,
            fill: self.fill_policy().await?,
        })
    }

    async fn profiles(&self) -> Result<model::profile::Profiles> {
        let able = async |profile: &str| {
            let value =
                async |what: &str| unsigned(self.meta::<i64>(&format!("{profile}_{what}")).await?);
            Ok::<_, StoreError>(Abilities {
                throughput_bps: value("throughput_bps").await?,
                capacity_bytes: value("capacity_bytes").await?,
                fill_bps: value("fill_bps").await?,
            })
        };
        let (flash, storage) = (able("flash").await?, able("storage").await?);
        let profiles = Profiles { flash, storage, global: able("global").await? };
        profiles_in(&profiles).map_err(|error| damaged(&error))
    }

    async fn fill_policy(&self) -> Result<FillPolicy> {
        let mut windows = Vec::new();
        for key in FILL_WINDOWS {
            let window = unsigned(self.meta::<i64>(key).await?)?;
            let minute = |number: u64| u16::try_from(number).map_err(|error| damaged(&error));
            if window != 0 {
                windows.push((minute(window / WINDOW_SCALE)?, minute(window % WINDOW_SCALE)?));
            }
        }
        let windows = Windows::new(windows).map_err(|error| damaged(&error))?;
        let urgent_max = BitsPerSecond(unsigned(self.meta(URGENT).await?)?);
        let seconds = async |key: &str| {
            let seconds = unsigned(self.meta::<i64>(key).await?)?;
            Ok::<_, StoreError>(Nanos::seconds(seconds.min(AFTER_MAX.as_seconds())))
        };
        Ok(FillPolicy {
            windows,
            urgent_max,
            masters: self.meta("fill_masters").await?,
            elsewhere_after: seconds("fill_elsewhere_after_s").await?,
            origin_after: seconds("fill_origin_after_s").await?,
        })
    }

    pub async fn put_policy(&self, policy: Policy) -> Result<()> {
        let mut transaction = self.begin().await?;
        put_meta(&mut transaction, "copies", u64::from(policy.copies)).await?;
        put_meta(&mut transaction, "versions_kept", u64::from(policy.versions_kept)).await?;
        for (key, figure) in Profiles::from(policy.profiles).figures() {
            put_meta(&mut transaction, key, figure).await?;
        }
        let mut windows = policy.fill.windows.minutes();
        for key in FILL_WINDOWS {
            let window = windows
                .next()
                .map_or(0, |(from, until)| u64::from(from) * WINDOW_SCALE + u64::from(until));
            put_meta(&mut transaction, key, window).await?;
        }
        put_meta(&mut transaction, URGENT, policy.fill.urgent_max.0).await?;
        let FillPolicy { masters, elsewhere_after, origin_after, .. } = policy.fill;
        put_meta(&mut transaction, "fill_masters", u64::from(masters)).await?;
        for (key, after) in
            [("fill_elsewhere_after_s", elsewhere_after), ("fill_origin_after_s", origin_after)]
        {
            put_meta(&mut transaction, key, after.as_seconds()).await?;
        }
        Ok(transaction.commit().await?)
    }
}
