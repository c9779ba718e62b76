//! Access to the keys of a `config.json`. Records which keys were read, so that the program can warn about unread keys.

use super::bad::BadConfig;
use super::harmless::is_harmless;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The most layers that a file may have. The largest published model has 126.
const MOST_LAYERS: u32 = 10_000;
/// The largest number that a file may give for a size, so that sums of sizes fit into 32 bits.
const MOST: u32 = 1 << 30;

/// The path and the contents of a nested object.
type Opened<'a> = (String, &'a Map<String, Value>);

/// A JSON object of the `config.json`: the whole file or a nested object. All objects of a file share the list of keys
/// that were read.
#[derive(Clone)]
pub struct Fields<'a> {
    table: &'a Map<String, Value>,
    /// The path of this JSON object in the `config.json`. It is empty for the whole file, and ends with a dot for a
    /// nested object, for example `text_config.`.
    path: String,
    read: Rc<RefCell<BTreeSet<String>>>,
    /// The nested objects that were opened: path and object.
    opened: Rc<RefCell<Vec<Opened<'a>>>>,
    /// The defaults of the family's configuration class, for keys that the object does not have.
    defaults: Option<&'static Map<String, Value>>,
    /// The defaults that were taken: key and value.
    taken: Rc<RefCell<BTreeSet<(String, String)>>>,
}

impl<'a> Fields<'a> {
    /// The whole `config.json` as an object of which no key was read yet.
    pub fn of(json: &'a Value) -> Result<Fields<'a>, BadConfig> {
        let table = json.as_object().ok_or_else(|| BadConfig {
            key: "the file".into(),
            why: "a config.json is a JSON object, { \"model_type\": .. }".into(),
        })?;
        Ok(Fields {
            table,
            path: String::new(),
            read: Rc::default(),
            opened: Rc::default(),
            defaults: None,
            taken: Rc::default(),
        })
    }

    /// The error that `key` of this JSON object has a wrong value; `why` says what is wrong.
    pub fn bad(&self, key: &str, why: impl Into<String>) -> BadConfig {
        BadConfig { key: format!("{}{key}", self.path), why: why.into() }
    }

    /// The object with `defaults` for keys that the file does not have.
    pub fn with_defaults(mut self, defaults: Option<&'static Map<String, Value>>) -> Fields<'a> {
        self.defaults = defaults;
        self
    }

    /// The value at `key` in the file, or else the default of the family's configuration class. `None` if the value is
    /// null or there is none. Records that the key was read.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        match self.table.get(key) {
            Some(_) => self.given(key),
            None => {
                let value = self.defaults?.get(key)?;
                self.taken.borrow_mut().insert((format!("{}{key}", self.path), value.to_string()));
                Some(value)
            }
        }
    }

    /// The keys that the file does not have and whose defaults were taken, with the defaults.
    pub fn taken(&self) -> Vec<(String, String)> {
        self.taken.borrow().iter().cloned().collect()
    }

    /// The value at `key` in the file itself; `None` if the value is null or the key is missing. Records that the key
    /// was read.
    pub fn given(&self, key: &str) -> Option<&'a Value> {
        self.read.borrow_mut().insert(format!("{}{key}", self.path));
        self.table.get(key).filter(|v| !v.is_null())
    }

    /// Whether the file has the key, also with a null.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub fn keys(&self) -> Vec<String> {
        self.table.keys().cloned().collect()
    }

    /// Whether the two objects are equal.
    pub fn is_same(&self, other: &Fields) -> bool {
        self.table == other.table
    }

    /// Records that `key` and all keys below it were read: another key says the same.
    pub fn pass_over(&self, key: &str) {
        self.given(key);
        let path = format!("{}{key}.", self.path);
        self.opened.borrow_mut().retain(|(opened, _)| !opened.starts_with(&path));
    }

    /// Records that all keys of this object were read: another object says the same.
    pub fn pass_over_all(&self) {
        self.opened.borrow_mut().retain(|(opened, _)| !opened.starts_with(&self.path));
    }

    /// The first of `keys` that this JSON object has with a value other than null, and this value; `None` if there is
    /// none.
    pub fn first<'k>(&self, keys: &[&'k str]) -> Option<(&'k str, &'a Value)> {
        let in_file = keys.iter().find_map(|key| self.given(key).map(|value| (*key, value)));
        in_file.or_else(|| keys.iter().find_map(|key| self.get(key).map(|value| (*key, value))))
    }

    /// The nested JSON object at `key`; `None` if the key is missing.
    pub fn table(&self, key: &str) -> Result<Option<Fields<'a>>, BadConfig> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(table)) => {
                let path = format!("{}{key}.", self.path);
                if self.opened.borrow().iter().all(|(opened, _)| *opened != path) {
                    self.opened.borrow_mut().push((path.clone(), table));
                }
                Ok(Some(Fields { table, path, defaults: None, ..self.clone() }))
            }
            Some(_) => Err(self.bad(key, "expected a table")),
        }
    }

    /// The value at `key`, a whole number of at least 1.
    pub fn size(&self, key: &str) -> Result<u32, BadConfig> {
        self.size_of(&[key])?.ok_or_else(|| self.bad(key, "missing; the shape needs it"))
    }

    /// The value at the first of `keys` that this JSON object has, a whole number of at least 1; `None` if it has none
    /// of the keys.
    pub fn size_of(&self, keys: &[&str]) -> Result<Option<u32>, BadConfig> {
        let Some((key, value)) = self.first(keys) else { return Ok(None) };
        match value.as_u64().and_then(|n| u32::try_from(n).ok()) {
            Some(n) if n > 0 && n <= MOST => Ok(Some(n)),
            Some(n) if n > 0 => Err(self.bad(key, format!("{value} is over {MOST}, the largest size"))),
            _ => Err(self.bad(key, format!("{value} is not a whole number of at least 1"))),
        }
    }

    /// The number of layers (`num_hidden_layers` and its other names); `None` without such a key.
    pub fn layers(&self) -> Result<Option<u32>, BadConfig> {
        let keys = ["num_hidden_layers", "num_layers", "n_layer"];
        match self.size_of(&keys)? {
            Some(layers) if layers > MOST_LAYERS => {
                let key = self.first(&keys).map_or(keys[0], |(key, _)| key);
                Err(self.bad(key, format!("{layers} layers are more than {MOST_LAYERS}, which no model has")))
            }
            layers => Ok(layers),
        }
    }

    /// The value at `key`, a whole number of at least 0; `None` if the key is missing.
    pub fn count(&self, key: &str) -> Result<Option<u32>, BadConfig> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64().and_then(|n| u32::try_from(n).ok()) {
            Some(n) => Ok(Some(n)),
            None => Err(self.bad(key, format!("{value} is not a whole number of at least 0"))),
        }
    }

    /// The value at `key`, true or false; `None` if the key is missing.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, BadConfig> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.bad(key, format!("{value} is not true or false")))
    }

    /// The string at `key`; `None` if the key is missing.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, BadConfig> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.bad(key, format!("{value} is not a text")))
    }

    /// The list of whole numbers at `key`; `None` if the key is missing.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<u64>>, BadConfig> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let list = value.as_array().and_then(|list| list.iter().map(Value::as_u64).collect());
        list.map(Some).ok_or_else(|| self.bad(key, "expected a list of whole numbers"))
    }

    /// The list of strings at `key`; `None` if the key is missing.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<&'a str>>, BadConfig> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let list = value.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
        list.map(Some).ok_or_else(|| self.bad(key, "expected a list of texts"))
    }

    /// Paths of the keys that no function has read and that may change the time of a pass: the keys of the file and of
    /// every object in it that was opened.
    pub fn unread(&self, whole: &Fields<'a>) -> Vec<String> {
        let read = self.read.borrow();
        let opened = self.opened.borrow();
        let first = [(self.path.clone(), self.table), (whole.path.clone(), whole.table)];
        let mut seen = BTreeSet::new();
        let mut unread = Vec::new();
        for (path, table) in first.iter().chain(opened.iter()) {
            if !seen.insert(path.clone()) {
                continue;
            }
            let keys = table.iter().filter(|(key, value)| !value.is_null() && !is_harmless(key));
            let paths = keys.map(|(key, _)| format!("{path}{key}"));
            unread.extend(paths.filter(|path| !read.contains(path)));
        }
        unread
    }
}
