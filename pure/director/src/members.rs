//! Registered appliances and what is known of each: by number, and by name.

use std::collections::BTreeSet;
use std::ops::Bound;

use model::id::ApplianceId;
use model::names::Names;
use model::number::index;

use crate::Member;

/// All registered appliances. A look-up costs the same whatever there is.
#[derive(Debug, Default)]
pub(crate) struct Members {
    numbers: Names<ApplianceId, u32>,
    /// The same names, for whoever goes through all of them.
    order: BTreeSet<ApplianceId>,
    /// By number. Invariant: those of `numbers`, and none for one that is gone.
    all: Vec<Option<(ApplianceId, Member)>>,
}

impl Members {
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    pub(crate) fn contains_key(&self, id: &ApplianceId) -> bool {
        self.numbers.contains_key(id)
    }

    pub(crate) fn get(&self, id: &ApplianceId) -> Option<&Member> {
        let (_, member) = self.all[index(*self.numbers.get(id)?)].as_ref()?;
        Some(member)
    }

    pub(crate) fn get_mut(&mut self, id: &ApplianceId) -> Option<&mut Member> {
        let (_, member) = self.all[index(*self.numbers.get(id)?)].as_mut()?;
        Some(member)
    }

    /// The member of a number.
    pub(crate) fn of_number_mut(&mut self, number: u32) -> Option<&mut Member> {
        let (_, member) = self.all.get_mut(index(number))?.as_mut()?;
        Some(member)
    }

    /// The name of a number.
    pub(crate) fn name(&self, number: u32) -> Option<&ApplianceId> {
        let (id, _) = self.all.get(index(number))?.as_ref()?;
        Some(id)
    }

    /// Adds one, under its number, which nobody else ever had.
    pub(crate) fn insert(&mut self, id: ApplianceId, member: Member) {
        let number = member.number;
        while self.all.len() <= index(number) {
            self.all.push(None);
        }
        let before = self.all[index(number)].replace((id.clone(), member));
        assert!(before.is_none(), "no number is given twice");
        self.order.insert(id.clone());
        self.numbers.insert(id, number);
        assert_eq!(self.order.len(), self.numbers.len(), "each has a number");
    }

    pub(crate) fn remove(&mut self, id: &ApplianceId) -> Option<Member> {
        let number = self.numbers.remove(id)?;
        self.order.remove(id);
        let (_, member) = self.all[index(number)].take()?;
        Some(member)
    }

    /// All whose names come after this, by name; without one all.
    pub(crate) fn after(
        &self,
        after: Option<&ApplianceId>,
    ) -> impl Iterator<Item = (&ApplianceId, &Member)> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let names = self.order.range::<ApplianceId, _>((after, Bound::Unbounded));
        names.filter_map(|id| Some((id, self.get(id)?)))
    }

    /// All, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ApplianceId, &Member)> {
        self.all.iter().flatten().map(|(id, member)| (id, member))
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.all.iter_mut().flatten().map(|(_, member)| member)
    }
}
