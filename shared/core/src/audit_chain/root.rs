//! The root of a day: how far each of its chains reached when the day was closed.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Digest, Head};
use crate::clock::Timestamp;

/// The version of the root's schema; it rises when a field changes its meaning or goes away.
pub const ROOT_SCHEMA_VERSION: u32 = 1;

const ROOT_DOMAIN: &[u8] = b"raglan audit root 1\n";

/// How far one chain reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainEnd {
    /// Whose chain it is: a key's identifier, a fingerprint, or what an operator changed.
    pub key: String,
    /// The last record.
    #[serde(flatten)]
    pub head: Head,
}

/// A closed day. Events that arrive after it was closed go into the chains of the day they happened on,
/// and the day is closed once more: the later root covers what the earlier one covers, and more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayRoot {
    /// [`ROOT_SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// The day in UTC, `YYYY-MM-DD`.
    pub day: String,
    /// 1 for the first closing of the day, then 2, 3, …
    pub closing: u32,
    /// When it was closed.
    pub closed_at: Timestamp,
    /// From then on events of the day expire, and the day cannot be verified any more.
    pub complete_until: Timestamp,
    /// Number of events in all chains.
    pub event_count: u64,
    /// The chains, in the order of their keys.
    pub chains: Vec<ChainEnd>,
    /// SHA-256 over the canonical form of all of the above.
    pub root: Digest,
}

impl DayRoot {
    /// Closes a day for the first time.
    #[must_use]
    pub fn close(
        day: &str,
        mut chains: Vec<ChainEnd>,
        closed_at: Timestamp,
        complete_until: Timestamp,
    ) -> Self {
        chains.sort_by(|one, other| one.key.cmp(&other.key));
        let root = Self {
            schema_version: ROOT_SCHEMA_VERSION,
            day: day.to_owned(),
            closing: 1,
            closed_at,
            complete_until,
            event_count: chains.iter().map(|chain| chain.head.sequence).sum(),
            chains,
            root: Digest::ZERO,
        };
        root.sealed()
    }

    /// The same as the day's closing number `closing`.
    #[must_use]
    pub fn numbered(mut self, closing: u32) -> Self {
        self.closing = closing;
        self.sealed()
    }

    fn sealed(mut self) -> Self {
        self.root = self.digest();
        self
    }

    /// Whether the root is the one of what it lists.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.root == self.digest()
    }

    /// Where the day's chain of that key ended; `None` when it had none.
    #[must_use]
    pub fn end_of(&self, key: &str) -> Option<Head> {
        let found = self
            .chains
            .binary_search_by(|chain| chain.key.as_str().cmp(key));
        found.ok().map(|n| self.chains[n].head)
    }

    fn digest(&self) -> Digest {
        let fields: Map<String, Value> = match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            // A struct of these types is always an object.
            _ => Map::new(),
        };
        Digest::of(ROOT_DOMAIN, &fields, "root")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(key: &str, sequence: u64) -> ChainEnd {
        let head = Head {
            sequence,
            hash: Digest::ZERO,
        };
        ChainEnd {
            key: key.to_owned(),
            head,
        }
    }

    #[test]
    fn a_root_is_read_as_it_was_written_and_notices_every_change() {
        let at = Timestamp::from_epoch_seconds(1_800_000_000);
        let later = at.plus_seconds(86_400);
        let root = DayRoot::close("2027-01-15", vec![end("b", 2), end("a", 3)], at, later);
        assert_eq!((root.event_count, root.closing), (5, 1));
        assert_eq!(root.end_of("b").unwrap().sequence, 2);
        assert_eq!(root.end_of("c"), None);
        let text = serde_json::to_string(&root).unwrap();
        assert_eq!(serde_json::from_str::<DayRoot>(&text).unwrap(), root);
        assert!(root.is_intact());

        let second = root.clone().numbered(2);
        assert!(second.is_intact() && second.root != root.root);
        let alterations: [fn(&mut DayRoot); 6] = [
            |root| root.day.push('x'),
            |root| root.closing = 7,
            |root| root.complete_until = root.closed_at,
            |root| root.event_count = 6,
            |root| root.chains[0].head.sequence = 2,
            |root| drop(root.chains.pop()),
        ];
        for alter in alterations {
            let mut altered = root.clone();
            alter(&mut altered);
            assert!(!altered.is_intact(), "{altered:?}");
        }
    }
}
