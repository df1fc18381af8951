//! The rough scores of some passages that follow each other.

use tantivy::{DocId, Score};

/// Passages that are scored together: few enough for the processor's nearest cache.
pub const WINDOW: DocId = 1024;

/// Passages that a loop does at a time.
pub const GROUP: usize = 32;

/// A byte for each passage of a group.
pub type Group = [u8; GROUP];

/// The units of a group's passages.
pub type Units = [u16; GROUP];

/// Groups of a window: so many that a [`Group`] has a byte for each of them as well.
pub const GROUPS: usize = GROUP;

const _: () = assert!(WINDOW as usize == GROUP * GROUPS);

/// Scores of a window in small whole numbers, "units". The loops over a group are written so that the
/// compiler uses the processor's vectors, and the alignment is theirs.
#[repr(align(16))]
pub struct RoughScores {
    units: [Units; GROUPS],
    /// Not 0 for passages that have a term.
    found: [Group; GROUPS],
}

impl RoughScores {
    /// Those of passages without a term.
    pub const fn new() -> Self {
        Self {
            units: [[0; _]; _],
            found: [[0; _]; _],
        }
    }

    /// Forgets what the terms gave.
    pub fn clear(&mut self) {
        self.units = [[0; _]; _];
    }

    /// Forgets which passages have a term.
    pub fn forget_found(&mut self) {
        self.found = [[0; _]; _];
    }

    /// Adds what a term gives to one passage, and marks it.
    #[inline]
    pub fn add(&mut self, place: usize, units: u16) {
        // Only damaged lists, which have a passage twice, reach a sum that has no room.
        let sum = &mut self.units.as_flattened_mut()[place];
        *sum = sum.wrapping_add(units);
        self.found.as_flattened_mut()[place] = 1;
    }

    /// Marks the passages that have something other than 0, group by group.
    pub fn find(&mut self, passages: &[Group]) {
        for (found, passages) in self.found.iter_mut().zip(passages) {
            for (found, has) in found.iter_mut().zip(passages) {
                *found |= has;
            }
        }
    }

    /// Leaves out the passages that are not in `places`, which ascend.
    pub fn keep(&mut self, places: impl Iterator<Item = usize>) {
        let mut kept = [[0; GROUP]; GROUPS];
        for place in places {
            kept.as_flattened_mut()[place] = u8::MAX;
        }
        let found = self.found.as_flattened_mut().iter_mut();
        for (found, kept) in found.zip(kept.as_flattened()) {
            *found &= kept;
        }
    }

    /// How many passages have a term.
    pub fn count(&self) -> u64 {
        // A byte has room for the count of 128.
        let counts = self.found.as_flattened().chunks_exact(128).map(|found| {
            let count = |count, found: &u8| count + u8::from(*found != 0);
            u64::from(found.iter().fold(0, count))
        });
        counts.sum()
    }

    /// The largest sum of a group.
    pub fn most(&self, group: usize) -> u16 {
        self.units[group].iter().fold(0, |most, sum| most.max(*sum))
    }

    /// Ends the sums of a group: 0 for a passage without a term, one more than was added for the others.
    pub fn settle(&mut self, group: usize) {
        for (sum, found) in self.units[group].iter_mut().zip(&self.found[group]) {
            *sum = if *found == 0 {
                0
            } else {
                sum.saturating_add(1)
            };
        }
    }

    /// Leaves out a group.
    pub fn leave_out(&mut self, group: usize) {
        self.units[group] = [0; _];
    }

    /// The sums of a group.
    pub const fn units(&self, group: usize) -> &Units {
        &self.units[group]
    }

    /// The sums of a group, to add to.
    pub const fn units_mut(&mut self, group: usize) -> &mut Units {
        &mut self.units[group]
    }
}

/// Adds what a term of so many units gives to those that have so many 255ths of them.
#[inline]
pub fn add_shares(sums: &mut Units, shares: &Group, units: u16) {
    for (sum, share) in sums.iter_mut().zip(shares) {
        // The same byte twice is the share in 65,535ths.
        let share = u16::from_ne_bytes([*share, *share]);
        let product = u32::from(share) * u32::from(units);
        let added = (product >> 16) as u16;
        *sum = sum.saturating_add(added);
    }
}

/// Whether one of the sums is above `least`.
pub fn any_above(units: &Units, least: u16) -> bool {
    let above = units.iter().map(|sum| sum.saturating_sub(least));
    above.fold(0, |all, above| all | above) > 0
}

/// The nearest whole number to one that is not negative and below 65,536.
#[inline]
pub fn rounded(number: Score) -> u16 {
    // At 2 to the 23rd power a float's last bit is worth 1. A cast would have to look for what an integer
    // cannot hold.
    const TO_WHOLE: Score = 8_388_608.0;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the lowest bits are the number"
    )]
    let whole = (number + TO_WHOLE).to_bits() as u16;
    whole
}
