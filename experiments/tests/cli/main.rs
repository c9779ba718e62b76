//! The command line from outside: what it prints, where it points, how it exits, what it leaves behind.

mod bad_input;
mod browser;
mod commands;
mod decide;
mod directions;
mod interrupted;
mod papers;
mod policies;
mod report;
mod results;
mod support;
