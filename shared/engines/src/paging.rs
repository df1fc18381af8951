//! Lists of engines that count pages, walked by offset: raglan's pages need not all have the same
//! length, and the page of an engine begins where the length divides.

use raglan_rag::backend::BackendError;

/// One page of an engine's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnginePage {
    offset: usize,
    /// Its number, from 1.
    pub number: usize,
    /// How many entries it has.
    pub size: usize,
}

impl EnginePage {
    /// The page that begins at `position` and has at most `limit` entries, and at most `most`.
    ///
    /// # Errors
    /// [`BackendError::Refused`] when the position is none of ours.
    pub fn at(position: Option<&str>, limit: usize, most: usize) -> Result<Self, BackendError> {
        let offset = match position {
            None => 0,
            Some(text) => text.parse::<usize>().map_err(|_| {
                BackendError::Refused("the position in the list is unknown".to_owned())
            })?,
        };
        let limit = limit.clamp(1, most);
        // There is always one: 1 divides everything.
        let size = (1..=limit)
            .rev()
            .find(|size| offset % size == 0)
            .unwrap_or(1);
        Ok(Self {
            offset,
            number: offset / size + 1,
            size,
        })
    }

    /// Where the next page begins, after one with `given` entries, of `total` where the engine tells
    /// or with more behind it where it tells that.
    pub fn next(self, given: usize, total: Option<u64>, has_more: Option<bool>) -> Option<String> {
        let end = self.offset.saturating_add(self.size);
        let more = match (has_more, total) {
            (Some(has_more), _) => has_more,
            (None, Some(total)) => (end as u64) < total,
            (None, None) => given >= self.size,
        };
        // An engine that promises more and gives nothing would be asked for ever.
        (more && given > 0).then(|| end.to_string())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_list_ends_where_the_engine_says_so_or_gives_nothing() {
        let page = EnginePage::at(Some("40"), 20, 100).unwrap();
        assert_eq!((page.number, page.size), (3, 20));
        assert_eq!(page.next(20, None, Some(true)).as_deref(), Some("60"));
        assert_eq!(page.next(20, Some(60), None), None);
        assert_eq!(page.next(20, Some(61), None).as_deref(), Some("60"));
        assert_eq!(page.next(19, None, None), None);
        assert_eq!(page.next(0, Some(1000), Some(true)), None);
        assert!(EnginePage::at(Some("-1"), 20, 100).is_err());
    }

    proptest! {
        #[test]
        fn pages_of_any_length_give_every_entry_once(
            total in 0_usize..300, limits in proptest::collection::vec(1_usize..60, 1..12),
        ) {
            let mut seen = Vec::new();
            let mut position: Option<String> = None;
            for limit in limits.iter().cycle() {
                let page = EnginePage::at(position.as_deref(), *limit, 50).unwrap();
                prop_assert!(page.size <= *limit && page.size <= 50);
                let start = (page.number - 1) * page.size;
                let given: Vec<usize> = (start..(start + page.size).min(total)).collect();
                let next = page.next(given.len(), Some(total as u64), None);
                seen.extend(given);
                position = next;
                if position.is_none() {
                    break;
                }
            }
            prop_assert_eq!(seen, (0..total).collect::<Vec<_>>());
        }
    }
}
