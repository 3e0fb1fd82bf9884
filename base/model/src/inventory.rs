//! What an appliance holds (actual), told as deltas between numbered states.

use crate::id::ObjectId;

/// The changes between two states of an appliance's inventory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// State before; 0 means that `held` is the full list.
    pub from: u64,
    /// State after.
    pub to: u64,
    /// Published since `from`.
    pub held: Vec<ObjectId>,
    /// Gone since `from`.
    pub gone: Vec<ObjectId>,
    /// All that is held at `to`; none if the sender cannot say it.
    pub check: Option<Check>,
}

/// A set of objects in two numbers. If those of two sets are the same, so are the sets, but for one
/// in 2^53. Kept up with every change, at no cost worth counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Check {
    pub count: u64,
    /// Their ids' first 53 bits, which is what JSON keeps of a number, exclusive or.
    pub sum: u64,
}

impl Check {
    /// Of these; none may be named twice.
    pub fn of<'a>(objects: impl IntoIterator<Item = &'a ObjectId>) -> Self {
        let mut check = Self::default();
        objects.into_iter().for_each(|object| check.put(object));
        check
    }

    /// The object is in the set, and was not.
    pub fn put(&mut self, object: &ObjectId) {
        self.count += 1;
        self.sum ^= bits(object);
    }

    /// The object is not in the set, and was.
    pub fn take(&mut self, object: &ObjectId) {
        self.count -= 1;
        self.sum ^= bits(object);
    }

    /// Of both sets, which have nothing in common.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { count: self.count + other.count, sum: self.sum ^ other.sum }
    }
}

fn bits(object: &ObjectId) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = object.0;
    u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 11
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_known_by_its_check_however_it_came_to_be() {
        let [a, b, c] = [1, 2, 3].map(|n| ObjectId([n; 32]));
        let mut check = Check::of([&c, &a]);
        check.put(&b);
        check.take(&c);
        assert_eq!(check, Check::of([&a, &b]));
        assert_eq!(check, Check::of([&a]).and(Check::of([&b])));
        assert_ne!(check, Check::of([&a, &c]));
        assert_ne!(check, Check::of([&a, &b, &ObjectId([0; 32])]), "ids alone would not tell");
        assert!(check.sum < 1 << 53);
    }
}
