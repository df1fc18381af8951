//! The roots of one day as witnesses of its chains.

use std::collections::{BTreeMap, BTreeSet};

use super::{DayRoot, Head, Witness};
use crate::clock::Timestamp;

/// The roots of a day that can be believed, in the order of the closings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DayWitnesses {
    roots: Vec<DayRoot>,
}

/// Something is wrong with the roots themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RootFault {
    /// A closing between others has no root.
    #[error("the root of closing {closing} is missing")]
    Missing {
        /// Which closing.
        closing: u32,
    },
    /// A root that is not as it was written, or lies where another one belongs.
    #[error("the root of closing {closing} was altered")]
    Altered {
        /// The closing at whose place it lies.
        closing: u32,
    },
}

impl DayWitnesses {
    /// The witnesses of `day`. The roots come with the number of the closing at whose place each was
    /// found; `None` is a root that cannot be read. What is wrong with a root is returned, and the root
    /// is no witness then.
    #[must_use]
    pub fn of(day: &str, found: BTreeMap<u32, Option<DayRoot>>) -> (Self, Vec<RootFault>) {
        let mut faults = Vec::new();
        let mut roots = Vec::with_capacity(found.len());
        let mut next = 1;
        for (closing, root) in found {
            faults.extend((next..closing).map(|closing| RootFault::Missing { closing }));
            next = closing.saturating_add(1);
            match root {
                Some(root) if root.day == day && root.closing == closing && root.is_intact() => {
                    roots.push(root);
                }
                _ => faults.push(RootFault::Altered { closing }),
            }
        }
        (Self { roots }, faults)
    }

    /// What the day looked like when it was closed last.
    #[must_use]
    pub fn latest(&self) -> Option<&DayRoot> {
        self.roots.last()
    }

    /// From then on events of the day expire. `None` when nothing says when.
    #[must_use]
    pub fn complete_until(&self) -> Option<Timestamp> {
        self.roots.iter().map(|root| root.complete_until).min()
    }

    /// What is known of the chain of that key.
    #[must_use]
    pub fn of_chain(&self, key: &str) -> Vec<Witness> {
        let witness = |root: &DayRoot| {
            let end = root.end_of(key)?;
            Some(Witness {
                closing: root.closing,
                end,
            })
        };
        self.roots.iter().filter_map(witness).collect()
    }

    /// Whose chains have to be verified: those that a head or a root names, and those of keys whose
    /// events were seen, whether a chain knows them or not.
    #[must_use]
    pub fn keys(&self, heads: &BTreeMap<String, Head>, seen: BTreeSet<String>) -> BTreeSet<String> {
        let mut keys = seen;
        keys.extend(heads.keys().cloned());
        let ends = self.roots.iter().flat_map(|root| &root.chains);
        keys.extend(ends.map(|end| end.key.clone()));
        keys
    }
}

#[cfg(test)]
mod tests;
