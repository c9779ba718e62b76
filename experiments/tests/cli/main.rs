//! Tests of the command line as a user sees it: output, messages, exit codes and files.

mod bad_input;
mod bounds;
mod browser;
mod calibrate;
mod calibrate_live;
mod capacity;
mod commands;
mod decide;
mod directions;
mod doctor;
mod engine;
mod explore;
mod habits;
mod hostile;
mod inert;
mod interrupted;
#[allow(dead_code, reason = "the laws of other tests")]
#[path = "../../../calibrate/src/synthetic.rs"]
mod law;
mod live;
mod observe;
mod observe_interrupt;
mod observe_limits;
mod observe_log;
mod observe_stated;
mod one_server;
mod overload;
mod pages;
mod papers;
mod perfetto;
mod policies;
mod profile;
mod profile_acceptance;
mod questions;
mod recipes;
mod recommend;
mod report;
mod results;
mod schema;
mod shards;
mod signals;
mod support;
mod text;
mod validate;
mod vllm_table;
mod whole_way;
