//! The command line from outside: what it prints, where it points, how it exits, what it leaves behind.

mod bad_input;
mod bounds;
mod browser;
mod commands;
mod decide;
mod directions;
mod doctor;
mod explore;
mod habits;
mod hostile;
mod interrupted;
mod live;
mod overload;
mod papers;
mod perfetto;
mod policies;
mod profile;
mod profile_acceptance;
mod report;
mod results;
mod schema;
mod signals;
mod support;
mod text;
mod validate;
mod vllm_table;
