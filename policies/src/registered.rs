//! Policies from other crates. A binary [registers](register) them before it calls `foretoken`'s `main`. From then on
//! they are read, listed, checked, labelled, drawn in figures and built like the policies in this crate's table. In
//! every list they come after the table's policies.

use crate::definition::{BadParameter, Definition};
use crate::look::{self, Look};
use crate::name::{self, BadName};
use crate::preset::Preset;
use crate::registry;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use std::any::Any;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// Why a policy of another crate was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotRegister {
    /// The policy's name cannot be used.
    #[error(transparent)]
    Name(#[from] BadName),
    /// The policy's default settings do not pass its own check.
    #[error("the defaults do not pass the policy's own check: {0}")]
    Defaults(#[from] BadParameter),
    /// The policy's settings are not a table of named values.
    #[error("the settings of `{0}` are no table of named values: they must be a struct with fields, or an empty one")]
    NoTable(&'static str),
}

/// Adds a policy that experiments can name, until the process ends. `preset` are its settings if an experiment gives
/// none. The policy gets a look that no other policy has. Call it before `main` of `foretoken` reads an experiment.
///
/// # Errors
/// A name that is not in kebab-case or that another policy has; defaults that the policy's own check refuses; settings
/// that are no table of named values.
pub fn register<T>(name: &'static str, preset: T) -> Result<(), CannotRegister>
where
    T: Definition + Clone + fmt::Debug + PartialEq + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static,
{
    add(name, preset, false)
}

/// Adds a policy as [`register`] does, or replaces a registered policy of the same name and keeps its look. It is meant
/// for policies that are written while the process runs, as in a Python session.
///
/// # Errors
/// The errors of [`register`], or the name belongs to a policy of the table, which cannot be replaced.
pub fn register_again<T>(name: &'static str, preset: T) -> Result<(), CannotRegister>
where
    T: Definition + Clone + fmt::Debug + PartialEq + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static,
{
    add(name, preset, true)
}

fn add<T>(name: &'static str, preset: T, again: bool) -> Result<(), CannotRegister>
where
    T: Definition + Clone + fmt::Debug + PartialEq + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static,
{
    name::kebab_case(name)?;
    preset.check().map_err(|e| BadParameter { policy: name, ..e })?;
    if !serde_json::to_value(&preset).is_ok_and(|settings| settings.is_object()) {
        return Err(CannotRegister::NoTable(name));
    }
    let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
    let earlier = all.entries.iter().position(|e| e.name == name).filter(|_| again);
    let look = match earlier {
        Some(at) => all.entries[at].look,
        None => {
            name::free(name, all.names().iter().copied())?;
            let taken = registry::looks().iter().copied().chain(all.entries.iter().map(|e| e.look));
            look::free("registered", &taken.collect::<Vec<Look>>())
        }
    };
    let read = {
        let preset = preset.clone();
        move |given: &mut dyn erased_serde::Deserializer| -> Result<Arc<dyn Settings>, erased_serde::Error> {
            Ok(Arc::new(Preset(preset.clone()).deserialize(given)?))
        }
    };
    let schema = |generator: &mut SchemaGenerator| generator.subschema_for::<T>();
    let entry = Entry { name, look, preset: Arc::new(preset), read: Box::new(read), schema };
    let entry: &'static Entry = Box::leak(Box::new(entry));
    match earlier {
        Some(at) => all.entries[at] = entry,
        None => all.entries.push(entry),
    }
    let names = crate::ROWS.iter().map(|row| row.name).chain(all.entries.iter().map(|e| e.name));
    all.names = Some(Vec::leak(names.collect()));
    Ok(())
}

/// The settings of a policy that another crate has registered. Only that crate knows their type.
trait Settings: Definition + fmt::Debug + Send + Sync {
    fn plain(&self) -> Value;
    fn is(&self, other: &dyn Settings) -> bool;
    fn as_any(&self) -> &dyn Any;
    fn as_definition(&self) -> &dyn Definition;
}

impl<T: Definition + fmt::Debug + PartialEq + Serialize + Send + Sync + 'static> Settings for T {
    fn plain(&self) -> Value {
        registry::plain(self)
    }

    fn is(&self, other: &dyn Settings) -> bool {
        other.as_any().downcast_ref::<T>().is_some_and(|other| other == self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_definition(&self) -> &dyn Definition {
        self
    }
}

type Read = dyn Fn(&mut dyn erased_serde::Deserializer) -> Result<Arc<dyn Settings>, erased_serde::Error> + Send + Sync;

/// A policy that another crate has registered: its name, look (colour, dash and marker in figures) and default
/// settings, how to read settings of its type, and how to make their schema.
struct Entry {
    name: &'static str,
    look: Look,
    preset: Arc<dyn Settings>,
    read: Box<Read>,
    schema: fn(&mut SchemaGenerator) -> Schema,
}

/// All policies that other crates have registered, and the list of all policies' names.
struct All {
    entries: Vec<&'static Entry>,
    /// The names of the policies in this crate's table, then of the policies that other crates registered; `None`
    /// before the first registration.
    names: Option<&'static [&'static str]>,
}

static ALL: RwLock<All> = RwLock::new(All { entries: Vec::new(), names: None });

/// The names of the policies in this crate's table of policies.
const TABLE: &[&str] = &{
    let mut names = [""; crate::ROWS.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = crate::ROWS[i].name;
        i += 1;
    }
    names
};

impl All {
    fn names(&self) -> &'static [&'static str] {
        self.names.unwrap_or(TABLE)
    }
}

fn entries() -> Vec<&'static Entry> {
    ALL.read().unwrap_or_else(PoisonError::into_inner).entries.clone()
}

/// The names of all policies: first those in this crate's table, then those that other crates registered.
pub(crate) fn all_names() -> &'static [&'static str] {
    ALL.read().unwrap_or_else(PoisonError::into_inner).names()
}

/// All registered policies with their default settings, in order of registration.
pub(crate) fn all() -> impl Iterator<Item = Registered> {
    entries().into_iter().map(|entry| Registered { entry, settings: entry.preset.clone() })
}

/// The JSON schemas of all registered policies, each `{ name = { settings } }`.
pub(crate) fn schemas(generator: &mut SchemaGenerator) -> Vec<Schema> {
    let one = |entry: &Entry| registry::named(entry.name, entry.preset.about().summary, (entry.schema)(generator));
    entries().into_iter().map(one).collect()
}

/// A policy of another crate, which was registered, with its settings.
#[derive(Clone)]
pub struct Registered {
    entry: &'static Entry,
    settings: Arc<dyn Settings>,
}

impl Registered {
    pub(crate) fn name(&self) -> &'static str {
        self.entry.name
    }

    pub(crate) fn definition(&self) -> &dyn Definition {
        self.settings.as_definition()
    }

    pub(crate) fn usual_look(&self) -> Look {
        self.entry.look
    }

    pub(crate) fn settings(&self) -> Value {
        self.settings.plain()
    }

    pub(crate) fn preset(&self) -> Value {
        self.entry.preset.plain()
    }
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_tuple(self.entry.name).field(&self.settings).finish()
    }
}

impl PartialEq for Registered {
    fn eq(&self, other: &Registered) -> bool {
        self.entry.name == other.entry.name && self.settings.is(&*other.settings)
    }
}

impl Serialize for Registered {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(self.entry.name, &self.settings.plain())?;
        map.end()
    }
}

/// Reads the settings of the policy registered under this name.
pub(crate) struct Named(pub &'static str);

impl<'de> DeserializeSeed<'de> for Named {
    type Value = Registered;

    fn deserialize<D: Deserializer<'de>>(self, given: D) -> Result<Registered, D::Error> {
        let entry =
            entries().into_iter().find(|entry| entry.name == self.0).expect("names were read from the registry");
        let settings = (entry.read)(&mut <dyn erased_serde::Deserializer>::erase(given)).map_err(D::Error::custom)?;
        Ok(Registered { entry, settings })
    }
}
