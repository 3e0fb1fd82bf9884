//! What viewers are expected to be sent, to nouns and back.

use model::expected::{ExpectedItem, FILES_MAX, ITEMS_MAX};
use model::units::Bytes;

use super::{WireError, bitmap_in, bitmap_out};
use crate::v1;

/// The items for the wire. O(files).
pub fn expected_out(items: &[ExpectedItem]) -> Vec<v1::expected::ExpectedItem> {
    let item = |ExpectedItem { version, files, day_per_mib }: &ExpectedItem| {
        let (version, files) = (version.to_string(), bitmap_out(files));
        v1::expected::ExpectedItem { version, files, day_bytes_per_mib: day_per_mib.0 }
    };
    items.iter().map(item).collect()
}

/// The items off the wire. A list that is too long is refused as a whole. O(files).
pub fn expected_in(items: &[v1::expected::ExpectedItem]) -> Result<Vec<ExpectedItem>, WireError> {
    if ITEMS_MAX < items.len() {
        return Err(WireError::Expected);
    }
    let mut left = FILES_MAX;
    let item = |of: &v1::expected::ExpectedItem| {
        let files = bitmap_in("expected.files", &of.files)?;
        left = left.checked_sub(files.len()).ok_or(WireError::Expected)?;
        let day_per_mib = Bytes(of.day_bytes_per_mib);
        Ok(ExpectedItem { version: of.version.parse()?, files, day_per_mib })
    };
    items.iter().map(item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::number::NumberSet;

    fn item(files: NumberSet) -> ExpectedItem {
        ExpectedItem { version: "film-1".parse().unwrap(), files, day_per_mib: Bytes(7) }
    }

    #[test]
    fn items_survive_the_way_out_and_in() {
        let items = [item((700..800).collect()), item([5, 9, 1 << 30].into())];
        assert_eq!(expected_in(&expected_out(&items)), Ok(items.to_vec()));
    }

    #[test]
    fn what_is_too_long_or_damaged_is_refused() {
        let half = item((0..8192).collect());
        let all = [half.clone(), half.clone(), item(NumberSet::new())];
        assert_eq!(expected_in(&expected_out(&all)), Ok(all.to_vec()));
        let more = [half.clone(), half, item([1].into())];
        assert_eq!(expected_in(&expected_out(&more)), Err(WireError::Expected));
        let many = vec![item(NumberSet::new()); ITEMS_MAX + 1];
        assert_eq!(expected_in(&expected_out(&many[1..])), Ok(many[1..].to_vec()));
        assert_eq!(expected_in(&expected_out(&many)), Err(WireError::Expected));
        let mut damaged = expected_out(&many[..1]);
        damaged[0].files = "AAAA".to_owned();
        assert!(expected_in(&damaged).unwrap_err().to_string().contains("expected.files"));
        damaged[0].files = bitmap_out(&(0..1 << 20).collect());
        assert_eq!(expected_in(&damaged), Err(WireError::Expected));
        damaged[0] = expected_out(&many[..1]).remove(0);
        damaged[0].version = "../x".to_owned();
        assert!(matches!(expected_in(&damaged), Err(WireError::Id(_))));
    }
}
