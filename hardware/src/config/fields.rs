//! Access to the keys of a `config.json`. Records which keys were read, so that the program can warn about unread keys.

use super::bad::BadConfig;
use super::harmless::is_harmless;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// A JSON object of the `config.json`: the whole file or a nested object. All objects of a file share the list of keys
/// that were read.
#[derive(Clone)]
pub struct Fields<'a> {
    table: &'a Map<String, Value>,
    /// The path of this JSON object in the `config.json`. It is empty for the whole file, and ends with a dot for a
    /// nested object, for example `text_config.`.
    path: String,
    read: Rc<RefCell<BTreeSet<String>>>,
}

impl<'a> Fields<'a> {
    /// The whole `config.json` as an object of which no key was read yet.
    ///
    /// # Errors
    /// The file's value is not a JSON object.
    pub fn of(json: &'a Value) -> Result<Fields<'a>, BadConfig> {
        let table = json.as_object().ok_or_else(|| BadConfig {
            key: "the file".into(),
            why: "a config.json is a JSON object, { \"model_type\": .. }".into(),
        })?;
        Ok(Fields { table, path: String::new(), read: Rc::default() })
    }

    /// The error that `key` of this JSON object has a wrong value; `why` says what is wrong.
    pub fn bad(&self, key: &str, why: impl Into<String>) -> BadConfig {
        BadConfig { key: format!("{}{key}", self.path), why: why.into() }
    }

    /// The value at `key`; `None` if the value is null or the key is missing. Records that the key was read.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.read.borrow_mut().insert(format!("{}{key}", self.path));
        self.table.get(key).filter(|v| !v.is_null())
    }

    /// The first of `keys` that this JSON object has with a value other than null, and this value; `None` if there is
    /// none.
    pub fn first<'k>(&self, keys: &[&'k str]) -> Option<(&'k str, &'a Value)> {
        keys.iter().filter_map(|key| self.get(key).map(|value| (*key, value))).next()
    }

    /// The nested JSON object at `key`; `None` if the key is missing.
    ///
    /// # Errors
    /// The value at `key` is not a JSON object.
    pub fn table(&self, key: &str) -> Result<Option<Fields<'a>>, BadConfig> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(table)) => {
                Ok(Some(Fields { table, path: format!("{}{key}.", self.path), read: self.read.clone() }))
            }
            Some(_) => Err(self.bad(key, "expected a table")),
        }
    }

    /// The value at `key`, a whole number of at least 1.
    ///
    /// # Errors
    /// The key is missing, or its value is not a whole number from 1 to 2³² − 1.
    pub fn size(&self, key: &str) -> Result<u32, BadConfig> {
        self.size_of(&[key])?.ok_or_else(|| self.bad(key, "missing; the shape needs it"))
    }

    /// The value at the first of `keys` that this JSON object has, a whole number of at least 1; `None` if it has none
    /// of the keys.
    ///
    /// # Errors
    /// The value is not a whole number from 1 to 2³² − 1.
    pub fn size_of(&self, keys: &[&str]) -> Result<Option<u32>, BadConfig> {
        let Some((key, value)) = self.first(keys) else { return Ok(None) };
        match value.as_u64().and_then(|n| u32::try_from(n).ok()) {
            Some(n) if n > 0 => Ok(Some(n)),
            _ => Err(self.bad(key, format!("{value} is not a whole number of at least 1"))),
        }
    }

    /// The value at `key`, a whole number of at least 0; `None` if the key is missing.
    ///
    /// # Errors
    /// The value is not a whole number from 0 to 2³² − 1.
    pub fn count(&self, key: &str) -> Result<Option<u32>, BadConfig> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64().and_then(|n| u32::try_from(n).ok()) {
            Some(n) => Ok(Some(n)),
            None => Err(self.bad(key, format!("{value} is not a whole number of at least 0"))),
        }
    }

    /// The value at `key`, true or false; `None` if the key is missing.
    ///
    /// # Errors
    /// The value is not true or false.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, BadConfig> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.bad(key, format!("{value} is not true or false")))
    }

    /// The string at `key`; `None` if the key is missing.
    ///
    /// # Errors
    /// The value is not a string.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, BadConfig> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.bad(key, format!("{value} is not a text")))
    }

    /// The list of whole numbers at `key`; `None` if the key is missing.
    ///
    /// # Errors
    /// The value is not a list, or an element is not a whole number of at least 0.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<u64>>, BadConfig> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let list = value.as_array().and_then(|list| list.iter().map(Value::as_u64).collect());
        list.map(Some).ok_or_else(|| self.bad(key, "expected a list of whole numbers"))
    }

    /// The list of strings at `key`; `None` if the key is missing.
    ///
    /// # Errors
    /// The value is not a list, or an element is not a string.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<&'a str>>, BadConfig> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let list = value.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
        list.map(Some).ok_or_else(|| self.bad(key, "expected a list of texts"))
    }

    /// Paths of the keys that no function has read and that may change the time of a pass: the keys of this JSON object
    /// and of the object `whole`.
    pub fn unread(&self, whole: &Fields) -> Vec<String> {
        let read = self.read.borrow();
        let left = |fields: &Fields| {
            let keys = fields.table.iter().filter(|(key, value)| !value.is_null() && !is_harmless(key));
            let paths = keys.map(|(key, _)| format!("{}{key}", fields.path));
            paths.filter(|path| !read.contains(path)).collect::<Vec<_>>()
        };
        let mut keys = left(self);
        if self.path != whole.path {
            keys.extend(left(whole));
        }
        keys
    }
}
