//! DynamoDB's JSON straight into records, for the answers that every call waits for.
//!
//! The SDK reads an answer into maps of attribute values, and `serde_dynamo` reads a record out of such a map:
//! every name and every text is allocated, and every name hashed. Here a record's own `Deserialize` reads the
//! JSON, in one pass.
//!
//! An item is read as the SDK's way reads it, or not at all: an attribute of the wrong type, a type that no
//! record has (`B`, `BS`, `NS`), a name that comes twice, JSON that is none. There are no errors here: the answer
//! is then read in the SDK's way ([`raglan_aws::ServiceClient::send_with_reader`]), which says what is wrong
//! with which record, and leaves that one out where others were asked for as well.
//!
//! Source: Amazon DynamoDB Developer Guide, "DynamoDB low-level API", data type descriptors.

use std::fmt;

use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;

/// An answer whose items are [`Record`]s; `None` when something in it is not as usual.
pub(crate) fn usual<T: DeserializeOwned>(answer: &[u8]) -> Option<T> {
    // A list would be taken for the members of an object.
    if !answer.starts_with(b"{") {
        return None;
    }
    // All of it is checked to be text: nothing looks at the parts that are skipped.
    serde_json::from_str(std::str::from_utf8(answer).ok()?).ok()
}

/// A record that is read from an item: `{"id":{"S":"handbook"},"chunk_count":{"N":"5"}}`.
#[derive(Debug)]
pub(crate) struct Record<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Record<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(Typed(Item(deserializer))).map(Self)
    }
}

/// JSON in one of DynamoDB's forms.
trait Form<'de> {
    type Error: Error;

    fn read<V: Visitor<'de>>(self, wanted: Wanted, visitor: V) -> Result<V::Value, Self::Error>;
}

/// What a record asks for, where the type that is there does not decide it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Any,
    Option,
    Struct,
    Enum,
}

/// The types of attributes that records have, by their names in the JSON.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(field_identifier)]
enum Kind {
    #[serde(rename = "S")]
    Text,
    #[serde(rename = "N")]
    Number,
    #[serde(rename = "BOOL")]
    Bool,
    #[serde(rename = "NULL")]
    Null,
    #[serde(rename = "L")]
    List,
    #[serde(rename = "SS")]
    TextSet,
    #[serde(rename = "M")]
    Map,
}

/// A whole item: attributes by name.
struct Item<D>(D);

/// An attribute: `{"S":"text"}`.
struct Attribute<D>(D);

/// An attribute whose type is known, and whose value is still to be read.
struct Opened<A> {
    kind: Kind,
    map: A,
}

/// An element of a set of texts: only a value.
struct Text<D>(D);

impl<'de, D: Deserializer<'de>> Form<'de> for Item<D> {
    type Error = D::Error;

    fn read<V: Visitor<'de>>(self, wanted: Wanted, visitor: V) -> Result<V::Value, D::Error> {
        Value::of(Kind::Map, wanted, visitor).deserialize(self.0)
    }
}

impl<'de, D: Deserializer<'de>> Form<'de> for Attribute<D> {
    type Error = D::Error;

    fn read<V: Visitor<'de>>(self, wanted: Wanted, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(AttributeVisitor { wanted, visitor })
    }
}

impl<'de, A: MapAccess<'de>> Form<'de> for Opened<A> {
    type Error = A::Error;

    fn read<V: Visitor<'de>>(mut self, wanted: Wanted, visitor: V) -> Result<V::Value, A::Error> {
        match (wanted, self.kind) {
            (Wanted::Any, _)
            | (Wanted::Option, Kind::Null)
            | (Wanted::Struct, Kind::Map)
            | (Wanted::Enum, Kind::Text) => self
                .map
                .next_value_seed(Value::of(self.kind, wanted, visitor)),
            (Wanted::Option, _) => visitor.visit_some(Typed(self)),
            (Wanted::Struct | Wanted::Enum, _) => Err(unusual()),
        }
    }
}

impl<'de, D: Deserializer<'de>> Form<'de> for Text<D> {
    type Error = D::Error;

    fn read<V: Visitor<'de>>(self, wanted: Wanted, visitor: V) -> Result<V::Value, D::Error> {
        match wanted {
            Wanted::Any => self.0.deserialize_str(visitor),
            Wanted::Option | Wanted::Struct | Wanted::Enum => Err(unusual()),
        }
    }
}

/// What a record reads from. Whatever type it asks for, it gets the one that is there, and refuses another.
struct Typed<F>(F);

impl<'de, F: Form<'de>> Deserializer<'de> for Typed<F> {
    type Error = F::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, F::Error> {
        self.0.read(Wanted::Any, visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, F::Error> {
        self.0.read(Wanted::Option, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, F::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, F::Error> {
        self.0.read(Wanted::Struct, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, F::Error> {
        self.0.read(Wanted::Enum, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

/// Reads the type of an attribute.
struct AttributeVisitor<V> {
    wanted: Wanted,
    visitor: V,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for AttributeVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an attribute")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<V::Value, A::Error> {
        let kind = map.next_key()?.ok_or_else(unusual)?;
        // A second type behind the value is refused by the JSON's reader, as what is left over.
        Opened { kind, map }.read(self.wanted, self.visitor)
    }
}

/// Reads a value whose type is known.
struct Value<V> {
    kind: Kind,
    wanted: Wanted,
    visitor: V,
}

impl<V> Value<V> {
    const fn of(kind: Kind, wanted: Wanted, visitor: V) -> Self {
        Self {
            kind,
            wanted,
            visitor,
        }
    }
}

impl<'de, V: Visitor<'de>> DeserializeSeed<'de> for Value<V> {
    type Value = V::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        match self.kind {
            Kind::Text | Kind::Number => deserializer.deserialize_str(self),
            Kind::Bool | Kind::Null => deserializer.deserialize_bool(self),
            Kind::List | Kind::TextSet => deserializer.deserialize_seq(self),
            Kind::Map => deserializer.deserialize_map(self),
        }
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Value<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value of an attribute")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<V::Value, E> {
        let visitor = self.visitor;
        if self.kind == Kind::Number {
            if let Ok(whole) = text.parse::<i64>() {
                visitor.visit_i64(whole)
            } else if let Ok(large) = text.parse::<u64>() {
                visitor.visit_u64(large)
            } else {
                visitor.visit_f64(text.parse().map_err(|_| unusual::<E>())?)
            }
        } else if self.wanted == Wanted::Enum {
            visitor.visit_enum(StrDeserializer::new(text))
        } else {
            visitor.visit_str(text)
        }
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<V::Value, E> {
        match (self.kind, value, self.wanted) {
            (Kind::Null, true, Wanted::Option) => self.visitor.visit_none(),
            (Kind::Null, true, _) => self.visitor.visit_unit(),
            (Kind::Null, false, _) => Err(unusual()),
            _ => self.visitor.visit_bool(value),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<V::Value, A::Error> {
        let are_texts = self.kind == Kind::TextSet;
        self.visitor.visit_seq(Elements { are_texts, seq })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(Attributes(map))
    }
}

/// The elements of a list or of a set of texts.
struct Elements<A> {
    are_texts: bool,
    seq: A,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Elements<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let is_text = self.are_texts;
        self.seq.next_element_seed(Element { is_text, seed })
    }
}

/// The attributes of an item or of a map.
struct Attributes<A>(A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Attributes<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let is_text = false;
        self.0.next_value_seed(Element { is_text, seed })
    }
}

/// Something inside of a list, a set or a map.
struct Element<S> {
    is_text: bool,
    seed: S,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Element<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        if self.is_text {
            self.seed.deserialize(Typed(Text(deserializer)))
        } else {
            self.seed.deserialize(Typed(Attribute(deserializer)))
        }
    }
}

fn unusual<E: Error>() -> E {
    E::custom("not as records are")
}

#[cfg(test)]
mod tests;
