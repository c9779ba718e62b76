//! Reads a policy's settings: the user's values, and the preset's values for all keys that the user does not give. A
//! preset is a policy with default settings under a name.
//!
//! Several policies share one type of parameters and differ in their defaults (`adaspec` and `adaspec-`). Serde's
//! defaults belong to the type, so they cannot differ. A preset is therefore read through a map that has the user's
//! entries, then the preset's entries for the missing keys. Errors keep their place: an unknown key is still reported
//! at that key.

use serde::de::{DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::marker::PhantomData;

/// Reads the settings `T` of a policy. Keys that the user does not give have the values of the preset (the default
/// settings under the policy's name).
pub(crate) struct Preset<T>(pub T);

impl<'de, T: Serialize + Deserialize<'de>> DeserializeSeed<'de> for Preset<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, given: D) -> Result<T, D::Error> {
        let preset = match serde_json::to_value(&self.0) {
            Ok(Value::Object(map)) => map,
            _ => return Err(D::Error::custom("a policy's settings are a table")),
        };
        given.deserialize_map(Table { preset, read: PhantomData })
    }
}

struct Table<T> {
    preset: Map<String, Value>,
    read: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Table<T> {
    type Value = T;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a table of settings")
    }

    fn visit_map<A: MapAccess<'de>>(self, given: A) -> Result<T, A::Error> {
        T::deserialize(serde::de::value::MapAccessDeserializer::new(Chained { given, rest: self.preset, value: None }))
    }
}

/// The map from which serde reads a policy's settings: the user's entries, then the preset's entries (default settings)
/// for the keys that the user does not give.
struct Chained<A> {
    given: A,
    rest: Map<String, Value>,
    /// The preset's value (default value) for the key that was just given to serde.
    value: Option<Value>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Chained<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        let mut seed = Some(seed);
        if let Some((name, key)) = self.given.next_key_seed(Remember(&mut seed))? {
            self.rest.remove(&name);
            return Ok(Some(key));
        }
        let Some(seed) = seed else { return Ok(None) };
        let Some(name) = self.rest.keys().next().cloned() else { return Ok(None) };
        self.value = self.rest.remove(&name);
        seed.deserialize(name.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        match self.value.take() {
            Some(value) => seed.deserialize(value).map_err(A::Error::custom),
            None => self.given.next_value_seed(seed),
        }
    }
}

/// Reads a key with the given serde seed and returns the key's name too. If there is no key, the seed stays in the
/// `Option`.
struct Remember<'a, K>(&'a mut Option<K>);

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for Remember<'_, K> {
    type Value = (String, K::Value);

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<Self::Value, D::Error> {
        let name = String::deserialize(key)?;
        let seed = self.0.take().ok_or_else(|| D::Error::custom("a key was read twice"))?;
        let key = seed.deserialize(name.clone().into_deserializer())?;
        Ok((name, key))
    }
}
