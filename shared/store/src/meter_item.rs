//! What the state table's counting item says ([`crate::limits`]).

use std::collections::BTreeMap;
use std::fmt;

use raglan_core::key_record::RateLimit;
use raglan_core::tool::Tool;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::limits::Meter;
use crate::table::{Item, number_of};

pub(crate) const FULL_AT: &str = "full_at_us";
pub(crate) const DAY: &str = "quota_day";
pub(crate) const LIMIT: &str = "rate_limit";
/// What the counters of tools begin with.
const TODAY: &str = "today_";

/// A counting item, as far as calls are judged by it. What it does not say is 0.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct MeterItem {
    pub(crate) meter: Meter,
    /// The calls of the item's day by tool.
    pub(crate) today: BTreeMap<Tool, u64>,
}

impl MeterItem {
    fn set_count(&mut self, tool: Tool, count: i64) {
        match u64::try_from(count) {
            Ok(count) if count > 0 => self.today.insert(tool, count),
            _ => self.today.remove(&tool),
        };
    }
}

impl From<&Item> for MeterItem {
    fn from(item: &Item) -> Self {
        let limit = item.get(LIMIT).and_then(|value| value.as_s().ok());
        let mut read = Self {
            meter: Meter {
                full_at_us: number_of(item, FULL_AT),
                day: number_of(item, DAY),
                limit: limit.and_then(|limit| limit_of(limit)),
            },
            today: BTreeMap::new(),
        };
        for tool in Tool::ALL {
            read.set_count(tool, number_of(item, &counter(tool)));
        }
        read
    }
}

impl<'de> Deserialize<'de> for MeterItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ItemVisitor)
    }
}

struct ItemVisitor;

impl<'de> Visitor<'de> for ItemVisitor {
    type Value = MeterItem;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a counting item")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<MeterItem, A::Error> {
        let mut item = MeterItem::default();
        while let Some(name) = map.next_key::<&str>()? {
            match name {
                FULL_AT => item.meter.full_at_us = map.next_value()?,
                DAY => item.meter.day = map.next_value()?,
                LIMIT => item.meter.limit = limit_of(&map.next_value::<String>()?),
                _ => match name.strip_prefix(TODAY).and_then(Tool::from_name) {
                    Some(tool) => item.set_count(tool, map.next_value()?),
                    None => _ = map.next_value::<IgnoredAny>()?,
                },
            }
        }
        Ok(item)
    }
}

/// The name of a tool's counter.
pub(crate) fn counter(tool: Tool) -> String {
    format!("{TODAY}{tool}")
}

/// A limit as the item has it.
pub(crate) fn limit_text(limit: RateLimit) -> String {
    format!("{}/{}", limit.requests_per_minute, limit.burst)
}

fn limit_of(text: &str) -> Option<RateLimit> {
    let (requests_per_minute, burst) = text.split_once('/')?;
    Some(RateLimit {
        requests_per_minute: requests_per_minute.parse().ok()?,
        burst: burst.parse().ok()?,
    })
}
