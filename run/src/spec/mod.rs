//! The contents of an experiment file as data: its tables and keys ([`experiment`]), the place of each key in the file
//! ([`document`]), and error messages ([`problem`]). This crate must not evaluate or run anything.

pub mod arena;
pub mod capacity;
pub mod document;
pub mod experiment;
pub mod fleet;
pub mod live;
pub mod observe;
pub mod paper;
pub mod problem;
pub mod prompts;
pub mod question;
pub mod read;
pub mod schema;
pub mod shown;
pub mod split;
pub mod text;
pub mod validate;
pub mod words;
