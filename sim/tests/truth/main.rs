//! The truth of a simulation from outside: what rounds of drafts meet, and what confidences are worth. One binary.

mod acceptance;
mod confidence;
